import { readdirSync, readFileSync } from 'node:fs'

/** CPU that all threads of a process have used, in milliseconds, from Linux's own account to the nanosecond. */
export function cpuMsOf(pid: number): number {
  let nanoseconds = 0
  for (const thread of readdirSync(`/proc/${pid}/task`)) {
    const [used = '0'] = readFileSync(`/proc/${pid}/task/${thread}/schedstat`, 'utf8').split(' ')
    nanoseconds += Number(used)
  }
  return nanoseconds / 1e6
}

/** Resident memory now, and the most there ever was. */
export function memoryMbOf(pid: number): { readonly now: number; readonly peak: number } {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8')
  const of = (name: string): number => Number(new RegExp(`^${name}:\\s+(\\d+)`, 'm').exec(status)?.[1] ?? Number.NaN)
  return { now: of('VmRSS') / 1024, peak: of('VmHWM') / 1024 }
}

import { readdir, readFile } from 'node:fs/promises'

/** The resident memory of all processes of a group, in bytes; undefined if the system does not tell (only Linux does). */
export async function groupMemoryBytes(group: number): Promise<number | undefined> {
  let pids: readonly string[]
  try {
    pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name))
  } catch {
    return undefined
  }
  const members = await Promise.all(pids.map((pid) => memberBytes(pid, group)))
  return members.reduce((sum, bytes) => sum + bytes, 0)
}

async function memberBytes(pid: string, group: number): Promise<number> {
  try {
    const stat = await readFile(`/proc/${pid}/stat`, 'utf8')
    // The name, in brackets, may hold any character; after it come state, parent and group.
    const [, , itsGroup] = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
    if (Number(itsGroup) !== group) return 0
    const [, kilobytes = '0'] = /^VmRSS:\s+(\d+)/m.exec(await readFile(`/proc/${pid}/status`, 'utf8')) ?? []
    return Number(kilobytes) * 1024
  } catch {
    // The process has ended meanwhile.
    return 0
  }
}

import type { FoundRun } from '../../store/index.ts'

/** How a run that is not complete goes on. Its command line is not kept with it, so this can only say which one it was. */
export function nextStep({ name, run }: FoundRun): string {
  if (run.state === 'running') return 'a process is working on it'
  return `the command that started it, with --run ${name}, continues it`
}

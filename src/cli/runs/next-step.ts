import type { FoundRun } from '../../store/index.ts'
import { formatCount, formatQuantity } from '../format/count.ts'
import { storedConfig } from './stored-run.ts'

/** How a run that is not complete goes on. Its command line is not kept with it, so this can only say which one it was. */
export function nextStep({ name, run }: FoundRun): string {
  if (run.state === 'running') return 'a process is working on it'
  const more = run.sittings.at(-1)?.end === 'max_cost' ? ' and a higher --max-cost' : ''
  return `the command that started it, with --run ${name}${more}, continues it`
}

/**
 * How many rollouts a run is to have in all, if more than have ended. Nobody knows while the source of its tasks was not read to
 * its end, nor where clients of a server decide.
 */
export function plannedRollouts(found: FoundRun, ended: number): { readonly planned?: number } {
  const { attempts, forkedFrom } = storedConfig(found)
  const { state, provenance } = found.run
  const tasks = forkedFrom ? 1 : provenance['tasks']
  if (state === 'complete' || typeof tasks !== 'number' || tasks * attempts <= ended) return {}
  return { planned: tasks * attempts }
}

/** How far a run of rollouts has come that is not complete, and how it goes on. */
export function howFar(found: FoundRun, ended: number): string {
  const { planned } = plannedRollouts(found, ended)
  const count =
    planned === undefined
      ? formatQuantity(ended, 'rollout')
      : `${formatCount(ended)} of ${formatQuantity(planned, 'rollout')}`
  return `${count} ended so far; ${nextStep(found)}`
}

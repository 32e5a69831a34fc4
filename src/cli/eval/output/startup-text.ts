import type { Progress } from '../../../eval/index.ts'
import { formatCount } from '../../format/count.ts'
import { printableLine } from '../../format/printable.ts'

/** What a run that has not started yet is busy with, judging by its progress. */
export function startupText(progress: Progress): string {
  const { environment, run, model, models, hasToolServers, ended, resumed } = progress
  if (environment === '') return 'loading the environment'
  if (run === '') return 'opening the run'
  // On this thread, models are open at once; a rollout thread has to load everything first.
  if (models.length === 0) return 'starting the rollout thread'
  if (ended > 0 && ended < resumed) return `reading earlier results: ${formatCount(ended)} of ${formatCount(resumed)}`
  // Outcomes are counted once the model has answered.
  if (Object.keys(progress.outcomes).length > 0) return 'asking the environment for its tasks'
  return `asking ${printableLine(model)} for a word${hasToolServers ? ' and opening the tool servers' : ''}`
}

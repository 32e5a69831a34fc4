import { readStoredConfig } from '../../eval/index.ts'
import { findRollout } from './find-rollout.ts'

/** Finds a rollout that is to run again. A run that has none that could says so, whatever the name. */
export function findRolloutToRepeat(...[given, reader, place]: Parameters<typeof findRollout>): string {
  readStoredConfig(reader)
  return findRollout(given, reader, place)
}

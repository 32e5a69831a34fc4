import { isDeepStrictEqual } from 'node:util'
import type { JsonObject } from '../../../schema/index.ts'
import { checkTask, JsonText } from '../../requests/request-body.ts'
import type { RolloutService } from '../../rollouts/rollout-service.ts'
import type { SessionTask } from '../../rollouts/served-sessions.ts'
import type { SeededRow } from './session-row.ts'
import { refusal } from '../fastapi/wire-errors.ts'

/** The task of a row, as for `/run`: what the dataset says of it, or with its parameters. Throws a 422 if neither fits. */
export async function rowTask(service: RolloutService, { own, whole, place }: SeededRow): Promise<SessionTask> {
  const { environment, bounds } = service
  const check = (task: string) => checkTask(environment, new JsonText(task), bounds.maxTaskBytes)
  const checked = await check(own)
  const fitting = typeof checked === 'string' ? await check(whole) : checked
  if (typeof fitting !== 'string') {
    const source = typeof checked === 'string' ? whole : own
    return { task: { index: 0, id: fitting.name ?? '0', data: fitting.value }, source, place }
  }
  // What is wrong with the first is what a user can act on.
  const msg = typeof checked === 'string' ? checked : fitting
  throw refusal({ type: 'value_error', loc: ['body'], msg, input: null })
}

/** Whether a row is the one that a session was set up for. Agents add fields, such as the index of a turn. */
export function isRowOf({ source, place }: SessionTask, row: SeededRow): boolean {
  if (place !== undefined && row.place !== undefined && place !== row.place) return false
  if (source === row.own || source === row.whole) return true
  const given = JSON.parse(row.whole) as JsonObject
  const seeded = Object.entries(JSON.parse(source) as JsonObject)
  return seeded.every(([name, value]) => isDeepStrictEqual(given[name], value))
}

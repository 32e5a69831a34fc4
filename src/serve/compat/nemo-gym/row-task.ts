import { completeParams, ownFields } from '../../../nemo-gym/index.ts'
import type { RolloutTerms } from '../../../rollout/index.ts'
import { isJsonObject, type JsonObject } from '../../../schema/index.ts'
import { checkTask, JsonText } from '../../requests/request-body.ts'
import type { RolloutService } from '../../rollouts/rollout-service.ts'
import { refusal } from './wire-errors.ts'

/** The task of a row, as for `/run`: what the dataset says of it, or with its parameters. Throws a 422 if neither fits. */
export async function rowTask(service: RolloutService, row: JsonObject): Promise<RolloutTerms['task']> {
  const { environment, bounds } = service
  const check = (task: JsonObject) => checkTask(environment, new JsonText(JSON.stringify(task)), bounds.maxTaskBytes)
  const own = ownFields(row)
  const { responses_create_params: params } = row
  const checked = await check(own)
  const whole = { responses_create_params: completeParams(isJsonObject(params) ? params : {}), ...own }
  const fitting = typeof checked === 'string' ? await check(whole) : checked
  if (typeof fitting !== 'string') return { index: 0, id: fitting.name ?? '0', data: fitting.value }
  // What is wrong with the first is what a user can act on.
  const msg = typeof checked === 'string' ? checked : fitting
  throw refusal({ type: 'value_error', loc: ['body'], msg, input: null })
}

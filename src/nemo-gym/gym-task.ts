import { MillraceError } from '../errors/index.ts'
import { isJsonObject, type Json, type JsonObject, type StandardSchema, taskOf } from '../schema/index.ts'
import { agentRefOf } from './gym-row.ts'
import { type GymRequest, readRow } from './read-row.ts'

/** A row of a JSONL file of NeMo Gym: what its server is sent, and what the model is asked. */
export interface GymTask {
  /** JSON, with every number as it was written. */
  readonly row: string
  /** The agent that the row names. */
  readonly agent?: string
  readonly request: GymRequest
}

/** The schema of rows, as objects or, where a number would not be written as it came, as text. */
export const gymTaskSchema: StandardSchema<unknown, GymTask> = {
  '~standard': {
    version: 1,
    vendor: 'millrace',
    validate(value) {
      try {
        return { value: readTask(value) }
      } catch (error) {
        return { issues: [{ message: MillraceError.from(error, 'task_invalid').rawMessage }] }
      }
    },
  },
}

function readTask(value: unknown): GymTask {
  const row: unknown = typeof value === 'string' ? JSON.parse(value) : value
  if (!isJsonObject(row)) throw new MillraceError('task_invalid', 'a row is an object with `responses_create_params`')
  const request = readRow(row)
  const agent = agentRefOf(row)
  const text = typeof value === 'string' ? value.trim() : JSON.stringify(row)
  return { row: text, request, ...(agent !== undefined && { agent }) }
}

/** The row as NeMo Gym's collector sends it to an agent: it says which rollout this is, and whose. */
export function sentRow(
  { row }: GymTask,
  of: { readonly rollout: string; readonly sample: number; readonly agent: string },
): string {
  const names = JSON.parse(row) as JsonObject
  const added: Record<string, Json> = {
    ...(!isJsonObject(names['agent_ref']) && { agent_ref: { name: of.agent } }),
    ...(names['_ng_task_index'] === undefined && { _ng_task_index: taskOf(of.rollout) }),
    _ng_rollout_index: of.sample,
  }
  return withFields(row, JSON.stringify(added).slice(1, -1))
}

/** An object's JSON with more fields, which win over its own: readers take the last one of a name. */
export function withFields(object: string, fields: string): string {
  return `${object.slice(0, object.lastIndexOf('}'))},${fields}}`
}

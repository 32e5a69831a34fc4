import type { Json } from './json.ts'

/** One repair of one tool call, as it is recorded. The model's own text is never changed. */
export interface ToolRepair {
  readonly rule: RepairRule
  /** The parameter that was repaired, where the rule does not say. */
  readonly at?: string
  readonly before: Json
  readonly after: Json
  /** False in `log` mode: the repair was only noted, not made. */
  readonly applied?: false
}

export type RepairRule =
  | 'json'
  | 'tool_alias'
  | 'server_route'
  | 'rename'
  | 'default'
  | 'value_fallback'
  | 'value_rewrite'
  | 'drop_nulls'
  | 'coerce'
  | 'retry_without'

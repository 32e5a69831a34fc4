import type { Json } from './json.ts'

/** One repair of one tool call, as it is recorded. The model's own text is never changed. */
export interface ToolRepair {
  readonly rule: RepairRule
  /** What it acted on, where the rule does not say: a parameter. */
  readonly at?: string
  readonly before: Json
  readonly after: Json
  /** Only noted, not done: the rules are in `log` mode. */
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

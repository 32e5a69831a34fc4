import { ParameterRepairs } from './_parameter-repairs.ts'
import { ValueRepairs } from './_value-repairs.ts'
import type { RepairTarget } from './call-repair-contract.ts'
import type { RepairRules } from './repair-rules.ts'

/** A tool, with the rules for it. */
export interface RepairableTool extends RepairTarget {
  readonly parameterRepairs: ParameterRepairs
  readonly valueRepairs: ValueRepairs
}

export function repairable(target: RepairTarget, rules: RepairRules): RepairableTool {
  const parameterRepairs = new ParameterRepairs(target, rules)
  return { ...target, parameterRepairs, valueRepairs: new ValueRepairs(target, rules) }
}

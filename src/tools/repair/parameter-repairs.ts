import type { ErrorObject } from 'ajv'
import { isJsonObject, type Json, type JsonObject, type ToolRepair } from '../../schema/index.ts'
import { pathOf, schemaErrors } from '../json-schema-parameters.ts'
import { Coercion } from './coercion.ts'
import { recorded, type RepairTarget } from './call-repair.ts'
import type { RepairRules } from './repair-rules.ts'

export interface RepairedArguments {
  readonly args: JsonObject
  readonly repairs: readonly ToolRepair[]
}

/** More wrong parameters than this are no mistake; the rest stay as they are. */
const maxCoerced = 50

/** Brings arguments nearer to the schema; each step is taken only if they still do not fit after the one before. */
export class ParameterRepairs {
  readonly #target: RepairTarget
  readonly #rules: RepairRules
  readonly #renames: readonly { readonly from: readonly string[]; readonly to: string }[]
  readonly #defaults: readonly (readonly [string, Json])[]

  constructor(target: RepairTarget, rules: RepairRules) {
    const own = (rules.parameters ?? []).filter(({ tool }) => tool === target.name || tool === target.serverToolName)
    this.#target = target
    this.#rules = rules
    this.#renames = own.flatMap(({ rename = [] }) => rename)
    this.#defaults = own.flatMap(({ defaults = {} }) => Object.entries(defaults))
  }

  repair(args: JsonObject, json: string): RepairedArguments {
    let current: RepairedArguments = { args, repairs: [] }
    if (this.#target.accepts?.(args) === true) return current
    const steps = [
      (errors: readonly ErrorObject[]) => this.#withoutNulls(current.args, errors),
      () => this.#renamed(current.args),
      () => this.#completed(current.args),
      () => this.#coerced(current.args, json),
    ]
    for (const step of steps) {
      const errors = this.#errors(current.args)
      if (errors.length === 0) break
      const next = step(errors)
      current = { args: next.args, repairs: [...current.repairs, ...next.repairs] }
    }
    return current
  }

  #errors(args: JsonObject): readonly ErrorObject[] {
    try {
      return schemaErrors(this.#target.parameters, args)
    } catch {
      // A schema that refers to itself may lead deeper than the stack allows: the tool's own validation judges these arguments.
      return []
    }
  }

  #withoutNulls(args: JsonObject, errors: readonly ErrorObject[]): RepairedArguments {
    if (this.#rules.dropNulls !== true) return { args, repairs: [] }
    const wrong = new Set(errors.map(({ instancePath, params }) => additionalIn(params) ?? pathOf(instancePath)[0]))
    const dropped = Object.keys(args).filter((key) => args[key] === null && wrong.has(key))
    if (dropped.length === 0) return { args, repairs: [] }
    const gone = new Set(dropped)
    const kept = Object.fromEntries(Object.entries(args).filter(([key]) => !gone.has(key)))
    return { args: kept, repairs: [{ rule: 'drop_nulls', before: recorded(dropped), after: [] }] }
  }

  #renamed(args: JsonObject): RepairedArguments {
    const isDeclared = (key: string): boolean => hasProperty(this.#target.parameters, key)
    const repairs: ToolRepair[] = []
    let current = args
    for (const { from, to } of this.#renames) {
      if (Object.hasOwn(current, to) || !isDeclared(to)) continue
      const written = from.find((key) => Object.hasOwn(current, key) && !isDeclared(key))
      if (written === undefined) continue
      current = Object.fromEntries(Object.entries(current).map(([key, value]) => [key === written ? to : key, value]))
      repairs.push({ rule: 'rename', before: written, after: to })
    }
    return { args: current, repairs }
  }

  #completed(args: JsonObject): RepairedArguments {
    const { required } = this.#target.parameters
    const missing = this.#defaults.filter(
      ([key]) => Array.isArray(required) && required.includes(key) && !Object.hasOwn(args, key),
    )
    if (missing.length === 0) return { args, repairs: [] }
    return {
      args: { ...args, ...Object.fromEntries(missing) },
      repairs: missing.map(([key, value]) => ({ rule: 'default', at: key, before: null, after: recorded(value) })),
    }
  }

  #coerced(args: JsonObject, json: string): RepairedArguments {
    if (this.#rules.coerce !== true) return { args, repairs: [] }
    const coercion = new Coercion((candidate) => this.#errors(candidate), json)
    const wrong = new Set(this.#errors(args).map(({ instancePath }) => pathOf(instancePath)[0]))
    const changed = new Map<string, Json>()
    const current = (): JsonObject => ({ ...args, ...Object.fromEntries(changed) })
    const repairs: ToolRepair[] = []
    for (const [key, value = null] of Object.entries(args)) {
      if (!wrong.has(key) || repairs.length === maxCoerced) continue
      const instead = coercion.instead(current(), key)
      if (instead === undefined) continue
      changed.set(key, instead)
      repairs.push({ rule: 'coerce', at: key, before: recorded(value), after: recorded(instead) })
    }
    return { args: current(), repairs }
  }
}

/** The name that a schema has no place for, if that is the error. */
function additionalIn(params: Readonly<Record<string, unknown>>): string | undefined {
  const name = params['additionalProperty'] ?? params['unevaluatedProperty']
  return typeof name === 'string' ? name : undefined
}

/** Whether a schema declares a property, itself or in a part of it. */
function hasProperty({ properties, allOf }: Readonly<Record<string, unknown>>, key: string): boolean {
  if (isJsonObject(properties) && Object.hasOwn(properties, key)) return true
  return Array.isArray(allOf) && allOf.some((part) => isJsonObject(part) && hasProperty(part, key))
}

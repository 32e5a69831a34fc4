import type { Json, JsonObject, ToolRepair } from '../../schema/index.ts'
import { Coercion } from './_coercion.ts'
import { recorded } from './_recorded.ts'
import { listIn, SchemaFit } from './_schema-fit.ts'
import type { RepairTarget } from './call-repair-contract.ts'
import type { RepairRules } from './repair-rules.ts'

export interface RepairedArguments {
  readonly args: JsonObject
  readonly repairs: readonly ToolRepair[]
}

/** More wrong parameters than this are no mistake; the rest stay as they are. */
const maxCoerced = 50

/**
 * The repairs that bring arguments nearer to their tool's schema. Arguments that fit it, or that the tool accepts as they are,
 * are not touched; each step is taken only if they still do not fit after the one before.
 */
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

  /** `json` is the text that the arguments were read from. */
  repair(args: JsonObject, json: string): RepairedArguments {
    const { parameters, accepts } = this.#target
    const fit = new SchemaFit(parameters)
    if (fit.fits(args, parameters) || accepts?.(args) === true) return { args, repairs: [] }
    const steps = [
      (current: JsonObject) => this.#withoutNulls(current, fit),
      (current: JsonObject) => this.#renamed(current, fit),
      (current: JsonObject) => this.#completed(current, fit),
      (current: JsonObject) => this.#coerced(current, fit, json),
    ]
    let current: RepairedArguments = { args, repairs: [] }
    for (const step of steps) {
      const next = step(current.args)
      current = { args: next.args, repairs: [...current.repairs, ...next.repairs] }
      if (fit.fits(current.args, parameters)) break
    }
    return current
  }

  #withoutNulls(args: JsonObject, fit: SchemaFit): RepairedArguments {
    if (this.#rules.dropNulls !== true) return { args, repairs: [] }
    const { parameters } = this.#target
    const others: unknown = parameters['additionalProperties']
    const dropped = Object.keys(args).filter(
      (key) => args[key] === null && !fit.fits(null, fit.memberSchema(parameters, key) ?? others),
    )
    if (dropped.length === 0) return { args, repairs: [] }
    const gone = new Set(dropped)
    const kept = Object.fromEntries(Object.entries(args).filter(([key]) => !gone.has(key)))
    return { args: kept, repairs: [{ rule: 'drop_nulls', before: recorded(dropped), after: [] }] }
  }

  #renamed(args: JsonObject, fit: SchemaFit): RepairedArguments {
    const { parameters } = this.#target
    const repairs: ToolRepair[] = []
    let current = args
    for (const { from, to } of this.#renames) {
      if (Object.hasOwn(current, to) || fit.memberSchema(parameters, to) === undefined) continue
      const written = from.find((key) => Object.hasOwn(current, key) && fit.memberSchema(parameters, key) === undefined)
      if (written === undefined) continue
      current = Object.fromEntries(Object.entries(current).map(([key, value]) => [key === written ? to : key, value]))
      repairs.push({ rule: 'rename', before: written, after: to })
    }
    return { args: current, repairs }
  }

  #completed(args: JsonObject, fit: SchemaFit): RepairedArguments {
    const required = listIn(fit.resolve(this.#target.parameters) ?? {}, 'required')
    const missing = this.#defaults.filter(([key]) => required.includes(key) && !Object.hasOwn(args, key))
    if (missing.length === 0) return { args, repairs: [] }
    return {
      args: { ...args, ...Object.fromEntries(missing) },
      repairs: missing.map(([key, value]) => ({ rule: 'default', at: key, before: null, after: recorded(value) })),
    }
  }

  #coerced(args: JsonObject, fit: SchemaFit, json: string): RepairedArguments {
    if (this.#rules.coerce !== true) return { args, repairs: [] }
    const { parameters } = this.#target
    const others: unknown = parameters['additionalProperties']
    const coercion = new Coercion(fit, json)
    const repairs: ToolRepair[] = []
    const changed: [string, Json][] = []
    for (const [key, value = null] of Object.entries(args)) {
      const schema = fit.memberSchema(parameters, key) ?? others
      if (fit.fits(value, schema)) continue
      const instead = coercion.instead(value, schema)
      if (instead === undefined || changed.length === maxCoerced) continue
      changed.push([key, instead])
      repairs.push({ rule: 'coerce', at: key, before: recorded(value), after: recorded(instead) })
    }
    return { args: changed.length > 0 ? { ...args, ...Object.fromEntries(changed) } : args, repairs }
  }
}

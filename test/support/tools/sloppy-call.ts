import { Ajv2020 } from 'ajv/dist/2020.js'
import { describe, expect, test } from 'vitest'
import type { JsonObject, RepairRule } from '../../../src/schema/index.ts'
import type { RepairedCall, RepairTarget } from '../../../src/tools/repair/call-repair.ts'
import { createRepairer } from '../../../src/tools/repair/repairer.ts'
import type { RepairRules } from '../../../src/tools/repair/repair-rules.ts'
import type { ParsedToolCall } from '../../../src/tool-formats/index.ts'

/** What the model wrote: [server, tool, arguments] or [tool, arguments]. */
type Written = readonly [string, string, string] | readonly [string, string]

interface Setting {
  readonly tools: readonly RepairTarget[]
  readonly rules: RepairRules
}

type Expected =
  | { readonly repaired: readonly [string, JsonObject]; readonly by: readonly RepairRule[] }
  /** Every part stands in the message. */
  | { readonly refused: readonly string[]; readonly status: 'unknown_tool' | 'bad_arguments' }
  | { readonly untouched: JsonObject }
  | { readonly left: JsonObject }

/** What the call is like, the call, what must become of it, and where that is so if not where the table says. */
export type SloppyCall = readonly [string, Written, Expected, Partial<Setting>?]

export function repaired(name: string, args: JsonObject, ...by: RepairRule[]): Expected {
  return { repaired: [name, args], by }
}

export function unknown(...refused: string[]): Expected {
  return { refused, status: 'unknown_tool' }
}

export function badArguments(...refused: string[]): Expected {
  return { refused, status: 'bad_arguments' }
}

/** As written, and fine. */
export function untouched(args: JsonObject): Expected {
  return { untouched: args }
}

/** As written, for the tool's own validation to refuse: there is no one thing that was meant. */
export function left(args: JsonObject): Expected {
  return { left: args }
}

/** Not ours, so that it cannot share a mistake with what it checks. */
const ajv = new Ajv2020({ strict: false, ownProperties: true })

export function describeCalls(table: string, setting: Setting, calls: readonly SloppyCall[]): void {
  describe(table, () => {
    for (const [what, call, expected, other] of calls) {
      const { tools, rules } = { ...setting, ...other }
      test(what, () => check(createRepairer(rules, tools).repair(written(call)), tools, expected))
    }
  })
}

export function written([first, second, third]: Written): ParsedToolCall {
  const [name, args] = third === undefined ? [first, second] : [second, third]
  const call: ParsedToolCall = { id: 'call-1', type: 'function', function: { name, arguments: args } }
  return third === undefined ? call : { ...call, server: first }
}

function check(made: RepairedCall, tools: readonly RepairTarget[], expected: Expected): void {
  if ('refused' in expected) {
    expect(made).toMatchObject({ kind: 'refused', status: expected.status })
    for (const part of expected.refused) expect(made.kind === 'refused' && made.message).toContain(part)
    return
  }
  const by = made.repairs.map(({ rule }) => rule)
  if ('repaired' in expected) {
    const [name, args] = expected.repaired
    expect(made).toMatchObject({ kind: 'call', name })
    expect(made.kind === 'call' && made.arguments).toStrictEqual(args)
    expect(by).toEqual(expected.by)
    expect(validates(tools, made)).toBe(true)
    return
  }
  const isRight = 'untouched' in expected
  expect(made.kind === 'call' && made.arguments).toStrictEqual(isRight ? expected.untouched : expected.left)
  expect(by).toEqual([])
  expect(validates(tools, made)).toBe(isRight)
}

function validates(tools: readonly RepairTarget[], call: RepairedCall): boolean {
  if (call.kind === 'refused') return false
  const target = tools.find(({ name }) => name === call.name)
  return target !== undefined && ajv.validate(target.parameters, call.arguments)
}

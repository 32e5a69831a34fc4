import { Ajv2020 } from 'ajv/dist/2020.js'
import { expect, test } from 'vitest'
import { seededRandom } from '../../kit/index.ts'
import { isJsonObject, type Json, type JsonObject } from '../../schema/index.ts'
import { pick, randomParameters, randomValue, type Random } from '../../../test/support/tools/random-schema.ts'
import { written } from '../../../test/support/tools/sloppy-call.ts'
import { createRepairer } from './repairer.ts'
import { miroThinkerRepairs, standardRepairs } from './repair-rules.ts'

const schemaCount = 80
const callsPerSchema = 12

/** Calls `visit` with random schemas and arguments, always the same, and whether the arguments validate. */
function forEachCall(
  seed: number,
  visit: (call: { parameters: JsonSchema; args: JsonObject; random: Random; isValid: (args: Json) => boolean }) => void,
): void {
  const random = seededRandom(seed)
  for (let count = 0; count < schemaCount; count += 1) {
    const parameters = randomParameters(random)
    // A new one for each, since it keeps what it compiled. `nullable` is OpenAPI's, and asks for another type beside it.
    const ajv = new Ajv2020({ strict: false, ownProperties: true, meta: false, validateSchema: false })
    const isValid = (args: Json): boolean => ajv.validate(parameters, args)
    for (let call = 0; call < callsPerSchema; call += 1) {
      const args = randomValue(random, parameters, parameters)
      if (isJsonObject(args)) visit({ parameters, args, random, isValid })
    }
  }
}

type JsonSchema = Readonly<Record<string, unknown>>

test.each([
  ['standardRepairs', standardRepairs],
  ['miroThinkerRepairs', miroThinkerRepairs],
])('a valid call is never changed by %s', (_name, rules) => {
  let valid = 0
  forEachCall(20_261, ({ parameters, args, isValid }) => {
    if (!isValid(args)) return
    valid += 1
    const text = JSON.stringify(args)
    const made = createRepairer(rules, [{ name: 'tool', parameters }]).repair(written(['tool', text]))
    expect(made, JSON.stringify(parameters)).toMatchObject({ kind: 'call', name: 'tool', repairs: [] })
    expect(made.kind === 'call' && JSON.stringify(made.arguments)).toBe(text)
  })
  expect(valid).toBeGreaterThan(200)
})

test('a call with one invalid value becomes valid or stays as written', () => {
  const counts = { mended: 0, same: 0 }
  forEachCall(20_262, ({ parameters, args, random, isValid }) => {
    const keys = Object.keys(args)
    if (keys.length === 0 || !isValid(args)) return
    const key = pick(random, keys)
    const spoilt = { ...args, [key]: spoil(args[key] ?? null) }
    if (isValid(spoilt)) return
    const text = JSON.stringify(spoilt)
    const made = createRepairer(standardRepairs, [{ name: 'tool', parameters }]).repair(written(['tool', text]))
    if (made.repairs.length === 0) {
      expect(made.kind === 'call' && JSON.stringify(made.arguments)).toBe(text)
      counts.same += 1
      return
    }
    const about = JSON.stringify({ parameters, spoilt, made })
    expect(made.kind === 'call' && isValid(made.arguments), about).toBe(true)
    counts.mended += 1
  })
  expect(counts.mended).toBeGreaterThan(30)
  expect(counts.same).toBeGreaterThan(10)
})

/** As models spoil values: numbers in quotes, structures as text. */
function spoil(value: Json): Json {
  if (typeof value === 'string') return value.toUpperCase()
  return JSON.stringify(value)
}

import { describe, expect, test } from 'vitest'
import { miroThinkerRepairs, repairRulesSchema, standardRepairs } from './repair-rules.ts'

describe.each([
  ['standardRepairs', standardRepairs],
  ['miroThinkerRepairs', miroThinkerRepairs],
])('%s', (_name, preset) => {
  test('is valid', () => {
    expect(repairRulesSchema.parse(preset)).toEqual(preset)
  })

  test('is plain data that can be cloned and written as JSON', () => {
    expect(structuredClone(preset)).toEqual(preset)
    expect(JSON.parse(JSON.stringify(preset))).toEqual(preset)
  })
})

test.each([
  ['a rule that does not exist', { guess: true }],
  ['a mode that does not exist', { mode: 'off' }],
  ['an alias without names', { toolAlias: [{ from: [], to: 'x' }] }],
  [
    'a fallback that never matches',
    { valueFallback: [{ tool: 'x', parameter: 'y', when: {}, action: { drop: true } }] },
  ],
  [
    'a fallback that does two things',
    { valueFallback: [{ tool: 'x', parameter: 'y', when: { falsy: true }, action: { drop: true, replaceBy: 1 } }] },
  ],
  ['an empty prefix', { valueRewrite: [{ tool: 'x', parameter: 'y', stripPrefix: '' }] }],
  ['a retry after nothing', { retryAfter: [{ tool: 'x', parameter: 'y', removeCharacters: '"' }] }],
])('%s is refused', (_what, rules) => {
  expect(repairRulesSchema.safeParse(rules).success).toBe(false)
})

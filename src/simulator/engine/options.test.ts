import { expect, test } from 'vitest'
import { MillraceError } from '../../errors/index.ts'
import { parseSimulatorOptions } from './options.ts'

test('everything has a default, and the default is a perfect model at no latency', () => {
  expect(parseSimulatorOptions({})).toMatchObject({
    seed: 0,
    skill: 1,
    sloppiness: 0,
    ttftMs: 0,
    tokensPerSecond: 0,
    spread: 0.2,
    faults: { rateLimit: 0, serverError: 0, cut: 0, malformed: 0, hang: 0, slow: 0 },
    overload: { afterMs: 0, forMs: 0 },
    maxConcurrent: 0,
    reasoning: false,
  })
})

test('dotted text options mean the same as nested values', () => {
  const fromText = parseSimulatorOptions({
    seed: '7',
    skill: '0.8',
    reasoning: 'true',
    weightVersion: '12',
    'faults.rateLimit': '0.2',
    'faults.cut': '0.1',
    'overload.forMs': '500',
  })
  const fromValues = parseSimulatorOptions({
    seed: 7,
    skill: 0.8,
    reasoning: true,
    weightVersion: '12',
    faults: { rateLimit: 0.2, cut: 0.1 },
    overload: { forMs: 500 },
  })
  expect(fromText).toEqual(fromValues)
})

test('dotted and nested options of one group are merged', () => {
  const { faults } = parseSimulatorOptions({ faults: { cut: 0.1 }, 'faults.hang': 0.2 })
  expect(faults).toMatchObject({ cut: 0.1, hang: 0.2 })
})

test('a change keeps the options it does not name', () => {
  const before = parseSimulatorOptions({ skill: 0.5, 'faults.cut': 0.1 })
  expect(parseSimulatorOptions({ 'faults.hang': 0.3 }, { base: before })).toEqual({
    ...before,
    faults: { ...before.faults, hang: 0.3 },
  })
})

test.each([
  [{ skil: 1 }, /`skil` is not known; did you mean `skill`\?/],
  [{ colour: 1 }, /`colour` is not known; there are seed, skill, /],
  [{ 'faults.cutt': 1 }, /faults: `cutt` is not known; did you mean `cut`\?/],
  [{ skill: 1.5 }, /skill/],
  [{ skill: '' }, /: skill: expected a number, not ""$/],
  [{ seed: 'often' }, /: seed: expected a whole number, or "random"/],
  [{ skill: 'much' }, /: skill: expected a number, not "much"$/],
  [{ 'faults.rateLimits': 0.1 }, /faults.*rateLimits/],
  [{ faults: { rateLimit: 0.6, hang: 0.5 } }, /faults.*must not exceed 1/],
  [{ reasoning: 'maybe' }, /reasoning/],
  [{ faults: 3 }, /faults/],
])('%j is refused with the name of the option', (options, message) => {
  const parse = () => parseSimulatorOptions(options as Record<string, unknown>)
  expect(parse).toThrow(MillraceError)
  expect(parse).toThrow(message)
})

import { describe, expect, test } from 'vitest'
import type { JsonObject } from '../../schema/index.ts'
import { miroServers, ownTool, ownTools, serverTool } from '../../../test/support/tools/catalogues.ts'
import { written } from '../../../test/support/tools/sloppy-call.ts'
import type { RepairTarget } from './call-repair.ts'
import { createRepairer } from './repairer.ts'
import { miroThinkerRepairs, type RepairRules, standardRepairs, type ValueFallback } from './repair-rules.ts'

const sloppy = written(['weather', `{"city":'Ghent',"days":"3","unit":null}`])

test('each repair records its place, the old value and the new one', () => {
  const { repairs } = createRepairer(standardRepairs, ownTools).repair(sloppy)
  expect(repairs).toEqual([
    { rule: 'json', before: sloppy.function.arguments, after: { city: 'Ghent', days: '3', unit: null } },
    { rule: 'drop_nulls', before: ['unit'], after: [] },
    { rule: 'coerce', at: 'days', before: '3', after: 3 },
  ])
})

test('the call itself is not changed', () => {
  const before = structuredClone(sloppy)
  createRepairer(standardRepairs, ownTools).repair(sloppy)
  expect(sloppy).toEqual(before)
})

test('without rules a call is only looked up and parsed', () => {
  const repairer = createRepairer({}, ownTools)
  expect(repairer.repair(written(['weather', '{"city":7,"unit":null}']))).toEqual({
    kind: 'call',
    name: 'weather',
    arguments: { city: 7, unit: null },
    repairs: [],
  })
  expect(repairer.repair(sloppy)).toMatchObject({ kind: 'refused', status: 'bad_arguments', repairs: [] })
})

describe('in log mode', () => {
  const log: RepairRules = { ...miroThinkerRepairs, mode: 'log' }

  test('a valid call is made as written', () => {
    const made = createRepairer(log, ownTools).repair(written(['weather', '{"city":"Ghent","days":"3"}']))
    expect(made).toEqual({
      kind: 'call',
      name: 'weather',
      arguments: { city: 'Ghent', days: '3' },
      repairs: [{ rule: 'coerce', at: 'days', before: '3', after: 3, applied: false }],
    })
  })

  test('a call that a repair would change is refused, and the repair is recorded', () => {
    const made = createRepairer(log, miroServers).repair(written(['tool-python', 'python', '{"code":"1"}']))
    expect(made).toMatchObject({
      kind: 'refused',
      status: 'unknown_tool',
      message: expect.stringContaining('there is no tool named "python" on server "tool-python"'),
    })
    expect(made.repairs.map(({ rule, applied }) => [rule, applied])).toEqual([
      ['tool_alias', false],
      ['rename', false],
      ['default', false],
    ])
  })

  test('arguments that are not JSON are refused', () => {
    const made = createRepairer(log, ownTools).repair(written(['weather', '{"city":"Ghent",}']))
    expect(made).toMatchObject({
      kind: 'refused',
      status: 'bad_arguments',
      repairs: [{ rule: 'json', applied: false }],
    })
  })

  test('no call is repeated', () => {
    const repairer = createRepairer(log, miroServers)
    expect(repairer.retryAfter('google_search', { q: '"a"' }, '{"organic":[]}')).toBeUndefined()
  })
})

describe('a denied tool', () => {
  const denied = ownTools.filter(({ name }) => name !== 'save')
  const reaching: RepairRules = {
    ...standardRepairs,
    toolAlias: [{ from: ['store'], to: 'save' }],
    valueFallback: [{ tool: 'weather', parameter: 'city', when: { falsy: true }, action: { callInstead: 'save' } }],
  }

  test.each([
    ['by its name', ['save', '{"json":"x"}']],
    ['by an alias', ['store', '{"json":"x"}']],
    ['by a server', ['files', 'save', '{"json":"x"}']],
    ['by nearly its name', ['savee', '{"json":"x"}']],
  ] as const)('is neither called nor named: %s', (_how, call) => {
    const made = createRepairer(reaching, denied).repair(written(call))
    expect(made).toMatchObject({ kind: 'refused', status: 'unknown_tool', repairs: [] })
    const told = made.kind === 'refused' ? made.message : ''
    expect(told.replace(/named "\w+"/, '')).not.toContain('save')
  })

  test('is not called by a fallback, which then has no effect', () => {
    const made = createRepairer(reaching, denied).repair(written(['weather', '{"city":""}']))
    expect(made).toEqual({ kind: 'call', name: 'weather', arguments: { city: '' }, repairs: [] })
  })
})

describe('valid values without a meaning', () => {
  const repairWith = (action: ValueFallback['action'], when: ValueFallback['when'], args: JsonObject) =>
    createRepairer({ valueFallback: [{ tool: 'weather', parameter: 'zip', when, action }] }, ownTools).repair(
      written(['weather', JSON.stringify(args)]),
    )

  test('are replaced', () => {
    const made = repairWith({ replaceBy: '9000' }, { oneOf: ['n/a'] }, { city: 'Ghent', zip: ' N/A ' })
    expect(made).toMatchObject({
      arguments: { city: 'Ghent', zip: '9000' },
      repairs: [{ rule: 'value_fallback', at: 'zip', before: ' N/A ', after: '9000' }],
    })
  })

  test('are dropped', () => {
    const made = repairWith({ drop: true }, { falsy: true }, { city: 'Ghent', zip: '' })
    expect(made).toMatchObject({
      kind: 'call',
      repairs: [{ rule: 'value_fallback', at: 'zip', before: '', after: null }],
    })
    expect(made.kind === 'call' && made.arguments).toStrictEqual({ city: 'Ghent' })
  })

  test('are sent to another tool once, without the fallbacks of that tool', () => {
    const [first, second] = [ownTool('first', { 'id?': {} }), ownTool('second', { 'id?': {} })]
    const rules: RepairRules = {
      valueFallback: [
        { tool: 'first', parameter: 'id', when: { falsy: true }, action: { callInstead: 'second' } },
        { tool: 'second', parameter: 'other', when: { falsy: true }, action: { callInstead: 'first' } },
      ],
    }
    const made = createRepairer(rules, [first, second]).repair(written(['first', '{"id":0,"other":0}']))
    expect(made).toEqual({
      kind: 'call',
      name: 'second',
      arguments: { other: 0 },
      repairs: [{ rule: 'value_fallback', at: 'id', before: 0, after: { tool: 'second' } }],
    })
  })

  test('are handled by the first matching rule only', () => {
    const about = { tool: 'weather', parameter: 'zip', when: { oneOf: ['?', '??'] } }
    const rules = {
      valueFallback: [
        { ...about, action: { replaceBy: '??' } },
        { ...about, action: { replaceBy: '???' } },
      ],
    }
    const made = createRepairer(rules, ownTools).repair(written(['weather', '{"city":"Ghent","zip":"?"}']))
    expect(made).toMatchObject({ arguments: { zip: '??' }, repairs: [{ before: '?', after: '??' }] })
  })

  test('are left unchanged if two tools match the fallback', () => {
    const two = [serverTool('a', 'run', {}, 'a_run'), serverTool('b', 'run', {}, 'b_run'), ...ownTools]
    const action = { callInstead: 'run' }
    const rules = { valueFallback: [{ tool: 'weather', parameter: 'zip', when: { falsy: true as const }, action }] }
    const made = createRepairer(rules, two).repair(written(['weather', '{"city":"Ghent","zip":""}']))
    expect(made).toMatchObject({ name: 'weather', repairs: [] })
  })

  test.each([undefined, '9000', 'n/a or so'])('are not confused with other values: %s', (zip) => {
    const args = zip === undefined ? { city: 'Ghent' } : { city: 'Ghent', zip }
    const made = repairWith({ drop: true }, { falsy: true, oneOf: ['n/a'] }, args)
    expect(made).toEqual({ kind: 'call', name: 'weather', arguments: args, repairs: [] })
  })
})

test('text can mark a result as empty', () => {
  const rule = { tool: 'save', parameter: 'json', removeCharacters: '()', whenResult: { contains: ['no results'] } }
  const repairer = createRepairer({ retryAfter: [rule] }, ownTools)
  expect(repairer.retryAfter('save', { json: '(a) b' }, 'Sorry, NO RESULTS.')?.arguments).toEqual({ json: 'a b' })
  expect(repairer.retryAfter('save', { json: '(a) b' }, '3 results')).toBeUndefined()
})

test('arguments that the tool accepts against its schema are not changed', () => {
  const split: RepairTarget = {
    ...ownTool('split', { words: { type: 'array', items: { type: 'string' } } }),
    accepts: ({ words }) => typeof words === 'string',
  }
  const made = createRepairer(standardRepairs, [split]).repair(written(['split', '{"words":"one"}']))
  expect(made).toEqual({ kind: 'call', name: 'split', arguments: { words: 'one' }, repairs: [] })
})

test('the record of a long value holds its beginning', () => {
  const url = `https://r.jina.ai/https://a.b/${'x'.repeat(10_000)}`
  const text = JSON.stringify({ url, info_to_extract: 'x' })
  const { repairs } = createRepairer(miroThinkerRepairs, miroServers).repair(written(['scrape_and_extract_info', text]))
  expect(repairs).toEqual([
    {
      rule: 'value_rewrite',
      at: 'url',
      before: `${url.slice(0, 500)}… (${url.length} characters)`,
      after: `${url.slice(18, 518)}… (${url.length - 18} characters)`,
    },
  ])
})

test('the record of a repair is short, however long the call is', () => {
  const text = `{"json":'${'x'.repeat(50_000)}', "path": ["${'y'.repeat(1_000)}"]}`
  const { repairs } = createRepairer(standardRepairs, ownTools).repair(written(['save', text]))
  expect(repairs.map(({ rule }) => rule)).toEqual(['json'])
  expect(JSON.stringify(repairs).length).toBeLessThan(1_500)
})

test('a __proto__ field in the arguments is a field like any other', () => {
  const made = createRepairer(standardRepairs, ownTools).repair(
    written(['weather', '{"city":"Ghent","days":"3","__proto__":{"unit":"x"}}']),
  )
  const args = made.kind === 'call' ? made.arguments : {}
  expect(Object.keys(args)).toEqual(['city', 'days', '__proto__'])
  expect(Object.getPrototypeOf(args)).toBe(Object.prototype)
})

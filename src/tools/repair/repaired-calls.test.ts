import { expect, test } from 'vitest'
import { z } from 'zod'
import type { ToolCall } from '../../schema/index.ts'
import type { Tool } from '../tool.ts'
import { ToolBox } from '../tool-box.ts'
import { createRepairer } from './repairer.ts'
import { type RepairRules, standardRepairs } from './repair-rules.ts'

interface Seen {
  readonly seen: unknown[]
}

const weather: Tool<Seen> = {
  parameters: z.object({ city: z.string(), days: z.int().max(7) }),
  run: (args, { seen }) => {
    seen.push(args)
    return seen.length > 1 ? 'sunny' : 'No results.'
  },
}

async function callWeather(rules: RepairRules, args: string) {
  const box = new ToolBox({ weather }, { makeRepairer: (targets) => createRepairer(rules, targets) })
  const call: ToolCall = { id: 'call-1', type: 'function', function: { name: 'weather', arguments: args } }
  const seen: unknown[] = []
  const [result] = await box.call([call], { context: { seen }, signal: new AbortController().signal })
  return { call, seen, content: result?.message.content, record: result?.record }
}

test('the tool gets the repaired arguments, the record lists the repairs, the call is unchanged', async () => {
  const { call, seen, record } = await callWeather(standardRepairs, "{'city': 'Ghent', 'days': '3'}")
  expect(seen).toEqual([{ city: 'Ghent', days: 3 }])
  expect(record).toMatchObject({ name: 'weather', status: 'ok', repairs: [{ rule: 'json' }, { rule: 'coerce' }] })
  expect(call.function.arguments).toBe("{'city': 'Ghent', 'days': '3'}")
})

test('arguments still invalid after repairs are refused, and the repairs are recorded', async () => {
  const { seen, content, record } = await callWeather(standardRepairs, '{"city":"Ghent","days":"30"}')
  expect(seen).toEqual([])
  expect(record).toMatchObject({ status: 'bad_arguments', repairs: [{ rule: 'coerce', before: '30', after: 30 }] })
  expect(content).toContain('Error: bad arguments for weather')
})

test('in log mode the tool refuses arguments that a repair would have corrected', async () => {
  const { seen, record } = await callWeather({ ...standardRepairs, mode: 'log' }, '{"city":"Ghent","days":"3"}')
  expect(seen).toEqual([])
  expect(record).toMatchObject({ status: 'bad_arguments', repairs: [{ rule: 'coerce', applied: false }] })
})

test('a call without results is repeated once', async () => {
  const whenResult = { contains: ['no results'] }
  const rules = { retryAfter: [{ tool: 'weather', parameter: 'city', removeCharacters: '"', whenResult }] }
  const { seen, content, record } = await callWeather(rules, JSON.stringify({ city: '"Ghent"', days: 3 }))
  expect(seen).toEqual([
    { city: '"Ghent"', days: 3 },
    { city: 'Ghent', days: 3 },
  ])
  expect(content).toBe('sunny')
  expect(record).toMatchObject({ status: 'ok', repairs: [{ rule: 'retry_without', at: 'city' }] })
})

import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { aggregateDifference } from '../../../../../test/support/serve/aggregate-difference.ts'
import { aggregateMetricsReply } from './aggregate-metrics.ts'

const fixtures = join(import.meta.dirname, '..', '..', '..', '..', '..', 'test', 'fixtures', 'nemo-gym')

/** Made by scripts/interop/nemo-gym/aggregate.ts with NeMo Gym 0.4.0, pandas 3.1 and numpy 2.5. */
const recorded = readFileSync(join(fixtures, 'aggregate-metrics.jsonl'), 'utf8')
  .trimEnd()
  .split('\n')
  .map((line) => JSON.parse(line) as { readonly body: string; readonly reply: string })

function reply(responses: readonly string[]): string {
  return aggregateMetricsReply(Buffer.from(`{"verify_responses":[${responses.join(',')}]}`))
}

const one = (rollout: number, fields: string): string => `{"_ng_task_index":0,"_ng_rollout_index":${rollout},${fields}}`

describe('aggregate metrics', () => {
  it('are those of NeMo Gym to the last digit, with its integers and floats, in its order', () => {
    expect(recorded.length).toBeGreaterThanOrEqual(60)
    const differences = recorded.flatMap(({ body, reply: expected }, index) => {
      const difference = aggregateDifference(expected, aggregateMetricsReply(Buffer.from(body)))
      return difference === undefined ? [] : [`line ${index + 1}: ${difference}`]
    })
    expect(differences).toEqual([])
  })

  it('notice a changed last digit, a float that was an integer, and a lost key', () => {
    const expected = reply([one(0, '"reward":0.1,"n":1'), one(1, '"reward":0.2,"n":2')])
    expect(aggregateDifference(expected, expected)).toBeUndefined()
    expect(expected).toContain('"mean/reward":0.15000000000000002')
    expect(aggregateDifference(expected, expected.replaceAll('0.15000000000000002', '0.15'))).toContain('mean/reward')
    expect(aggregateDifference(expected, expected.replace('"n":1}', '"n":1.0}'))).toContain('integer 1, not float 1')
    expect(aggregateDifference(expected, expected.replace('"num_rollouts":2,', ''))).toContain('has the keys')
  })

  it('add decimals up as numpy does, in pairs, however many there are', () => {
    const values = Array.from({ length: 1_000 }, (_, index) => 1 / (index + 1))
    const text = reply(values.map((value, index) => one(index, `"reward":${value}`)))
    // numpy.sum, not a running sum: that would end in ...0565
    const running = values.reduce((sum, value) => sum + value, 0) / values.length
    expect(running).toBe(0.007485470860550343)
    expect(text).toContain('"mean/reward":0.007485470860550345,')
  })

  it('keep integers beyond 2^53 in a body that NeMo Gym fails on', () => {
    const text = reply([one(0, '"reward":1,"seed":9007199254740993'), one(1, '"reward":0,"seed":9007199254740995')])
    expect(text).toContain('"max/seed":9007199254740995')
    expect(text).toContain('"reward":1,"seed":9007199254740993')
  })

  it('of nothing are empty', () => {
    expect(reply([])).toBe('{"group_level_metrics":[],"agent_metrics":{},"key_metrics":{}}')
  })

  it.each([
    ['{', 'JSON decode error'],
    ['[]', 'Input should be a valid dictionary or object to extract fields from'],
    ['{}', 'verify_responses: Field required'],
    ['{"verify_responses":3}', 'verify_responses: Input should be a valid list'],
    ['{"verify_responses":[3]}', 'verify_responses.0: Input should be a valid dictionary'],
    ['{"verify_responses":[{"_ng_task_index":0}]}', '_ng_rollout_index: Input should be a valid integer'],
    [`{"verify_responses":[${one(1, '"a":1')},${one(1, '"a":1')}]}`, 'there are two responses of task 0, rollout 1'],
  ])('refuse %s, and say what is wrong with it', (body, message) => {
    expect(() => aggregateMetricsReply(Buffer.from(body))).toThrow(message)
  })
})

import { isJsonObject } from '../../../../kit/index.ts'
import { passMetrics } from './pass-metrics.ts'
import {
  pairwiseSum,
  pythonNumber,
  pythonNumberOrFlag,
  type PythonNumber,
  writePython,
} from '../../fastapi/python-numbers.ts'
import { missing, objectBody, refusal } from '../../fastapi/wire-errors.ts'

type Fields = Readonly<Record<string, unknown>>
type Metrics = Record<string, unknown>

interface AggregateMetrics {
  /** One for each task, by its index. */
  readonly group_level_metrics: readonly Metrics[]
  readonly agent_metrics: Metrics
  readonly key_metrics: Metrics
}

const taskKey = '_ng_task_index'
const rolloutKey = '_ng_rollout_index'

/** One verify response, and what is counted of it. */
interface Rollout {
  readonly task: bigint
  readonly index: bigint
  readonly fields: Fields
  readonly numbers: ReadonlyMap<string, PythonNumber>
}

/**
 * The answer of `POST /aggregate_metrics` to this body: NeMo Gym's metrics, equal to the last digit to those that its own servers
 * compute with pandas. Throws `usage` with the `detail` of a 422.
 */
export function aggregateMetricsReply(body: Uint8Array): string {
  return writePython(aggregateMetrics(verifyResponsesIn(body)))
}

function aggregateMetrics(responses: readonly Fields[]): AggregateMetrics {
  if (responses.length === 0) return { group_level_metrics: [], agent_metrics: {}, key_metrics: {} }
  const received = responses.map(rolloutOf)
  const rollouts = received.toSorted((a, b) => order(a.task, b.task) || order(a.index, b.index))
  requireDistinct(rollouts)
  const tasks = byTask(rollouts)
  const columns = columnsOf(rollouts)
  const overall = describe(columns, { from: 0, to: rollouts.length })
  let from = 0
  const groups = tasks.map((members) => {
    const to = from + members.length
    const group = groupMetrics(members, describe(columns, { from, to }))
    from = to
    return group
  })
  const keyMetrics = Object.fromEntries(Object.entries(overall).filter(([name]) => name.startsWith('mean/')))
  // The first k of a task are those that came first.
  const passed = passMetrics(byTask(received).map((members) => members.map(({ fields }) => fields)))
  return {
    group_level_metrics: groups,
    agent_metrics: { ...overall, ...passed },
    key_metrics: keyMetrics,
  }
}

function verifyResponsesIn(body: Uint8Array): readonly Fields[] {
  const parsed = objectBody(body)
  const { verify_responses: given } = parsed
  const loc = ['body', 'verify_responses']
  if (given === undefined) throw missing(loc, parsed)
  if (!Array.isArray(given))
    throw refusal({ type: 'list_type', loc, msg: 'Input should be a valid list', input: given })
  return given.map((response: unknown, index) => {
    if (isJsonObject(response)) return response
    throw refusal({
      type: 'dict_type',
      loc: [...loc, index],
      msg: 'Input should be a valid dictionary',
      input: response,
    })
  })
}

/** What a rollout says of itself beside numbers that are counted, and what is no metric of it. */
const notCounted = new Set([taskKey, rolloutKey, 'agent_name'])
const notRepeated = new Set([taskKey, rolloutKey, 'reward', 'response'])

function rolloutOf(fields: Fields): Rollout {
  const usage = usageOf(fields)
  const numbers = new Map<string, PythonNumber>()
  for (const [name, value] of Object.entries({ ...fields, ...usage })) {
    const number = notCounted.has(name) ? undefined : pythonNumberOrFlag(value)
    if (number !== undefined) numbers.set(name, number)
  }
  return { task: placeIn(fields, taskKey), index: placeIn(fields, rolloutKey), fields, numbers }
}

function usageOf({ response }: Fields): Fields {
  const usage = isJsonObject(response) ? response['usage'] : undefined
  return isJsonObject(usage) ? usage : {}
}

function placeIn(fields: Fields, key: string): bigint {
  const place = pythonNumber(fields[key])
  if (typeof place === 'bigint') return place
  throw refusal({
    type: 'int_type',
    loc: ['body', key],
    msg: 'Input should be a valid integer',
    input: fields[key] ?? null,
  })
}

function byTask(rollouts: readonly Rollout[]): readonly (readonly Rollout[])[] {
  const tasks = Map.groupBy(rollouts, ({ task }) => task)
  return Array.from(tasks)
    .sort(([a], [b]) => order(a, b))
    .map(([, members]) => members)
}

function requireDistinct(sorted: readonly Rollout[]): void {
  for (const [at, { task, index }] of sorted.entries()) {
    const before = sorted[at - 1]
    if (before?.task !== task || before.index !== index) continue
    const msg = `there are two responses of task ${task}, rollout ${index}; send each once`
    throw refusal({ type: 'value_error', loc: ['body', 'verify_responses'], msg, input: null })
  }
}

function order(a: bigint, b: bigint): number {
  return Number(a > b) - Number(a < b)
}

interface Column {
  readonly name: string
  /** NaN where a rollout does not have it. */
  readonly values: Float64Array
  /** Its exact values, if all columns are integers of one kind: then the largest and smallest stay integers. */
  readonly integers: readonly bigint[] | undefined
}

function columnsOf(rollouts: readonly Rollout[]): readonly Column[] {
  const names = new Set(rollouts.flatMap(({ numbers }) => Array.from(numbers.keys())))
  const columns = Array.from(names, (name) => {
    const values = rollouts.map(({ numbers }) => numbers.get(name))
    const integers = values.filter((value) => typeof value === 'bigint')
    return {
      name,
      values: Float64Array.from(values, (value) => Number(value ?? NaN)),
      integers,
      kind: kindOf(integers, values.length),
    }
  })
  const kinds = new Set(columns.map(({ kind }) => kind))
  const areIntegers = kinds.size === 1 && !kinds.has('float64')
  return columns.map(({ name, values, integers }) => ({ name, values, integers: areIntegers ? integers : undefined }))
}

const leastLong = -(2n ** 63n)
const mostLong = 2n ** 63n - 1n
const mostUnsigned = 2n ** 64n - 1n

function kindOf(integers: readonly bigint[], count: number): 'int64' | 'uint64' | 'float64' {
  if (integers.length < count) return 'float64'
  if (integers.every((value) => value >= leastLong && value <= mostLong)) return 'int64'
  return integers.every((value) => value >= 0n && value <= mostUnsigned) ? 'uint64' : 'float64'
}

interface Range {
  readonly from: number
  readonly to: number
}

interface Statistics {
  readonly name: string
  readonly isWhole: boolean
  readonly mean: number
  readonly max: PythonNumber
  readonly min: PythonNumber
  readonly median: number
  readonly std: number
}

const statisticNames = ['mean', 'max', 'min', 'median', 'std'] as const

/** The statistics of each column over these rollouts. One that has no value is left out. */
function describe(columns: readonly Column[], range: Range): Metrics {
  const all = columns.map((column) => statisticsOf(column, range))
  // Where no column has a deviation, that of a column without gaps is 0.
  const hasDeviation = all.some(({ std }) => !Number.isNaN(std))
  const metrics: Metrics = {}
  for (const statistic of statisticNames) {
    for (const { name, isWhole, ...values } of all) {
      const isZero = statistic === 'std' && !hasDeviation && isWhole
      const value = isZero ? 0 : values[statistic]
      if (!Number.isNaN(value)) metrics[`${statistic}/${name}`] = value
    }
  }
  return metrics
}

function statisticsOf({ name, values: all, integers: allIntegers }: Column, { from, to }: Range): Statistics {
  const values = all.subarray(from, to)
  const integers = allIntegers?.slice(from, to)
  const sorted = values.filter((value) => !Number.isNaN(value)).sort()
  const count = sorted.length
  const average = count === 0 ? NaN : pairwiseSum(values.map((value) => (Number.isNaN(value) ? 0 : value))) / count
  // A missing value adds 0, at its place: the sum is that of all places.
  const squares = values.map((value) => (Number.isNaN(value) ? 0 : (average - value) * (average - value)))
  return {
    name,
    isWhole: count === values.length,
    mean: average,
    max: integers ? integers.reduce((a, b) => (b > a ? b : a)) : (sorted.at(-1) ?? NaN),
    min: integers ? integers.reduce((a, b) => (b < a ? b : a)) : (sorted[0] ?? NaN),
    median: medianOf(sorted),
    std: count > 1 ? Math.sqrt(pairwiseSum(squares) / (count - 1)) : NaN,
  }
}

function medianOf(sorted: Float64Array): number {
  const { length } = sorted
  if (length === 0) return NaN
  const upper = sorted[Math.floor(length / 2)] as number
  const lower = sorted[Math.floor((length - 1) / 2)] as number
  return (lower + upper) / 2
}

const allThere = { missing_num_rollouts: 0n, reward_profile_completion_pct: 100 }

function groupMetrics(members: readonly Rollout[], statistics: Metrics): Metrics {
  const [first] = members
  const count = BigInt(members.length)
  return {
    [taskKey]: first?.task,
    ...statistics,
    sample: { agent_ref: { name: 'agent' } },
    num_rollouts: count,
    expected_num_rollouts: count,
    ...allThere,
    rollout_infos: members.map(rolloutInfo),
  }
}

function rolloutInfo({ task, index, fields }: Rollout): Metrics {
  const info: Metrics = { rollout_id: `${task}:${index}`, [taskKey]: task, [rolloutKey]: index }
  const { reward } = fields
  if (reward !== undefined) info['reward'] = pythonNumber(reward) ?? reward
  const addNumbers = (given: Fields): void => {
    for (const [name, value] of Object.entries(given)) {
      const number = pythonNumberOrFlag(value)
      if (number !== undefined) info[name] = number
    }
  }
  addNumbers(usageOf(fields))
  addNumbers(Object.fromEntries(Object.entries(fields).filter(([name]) => !notRepeated.has(name))))
  return info
}

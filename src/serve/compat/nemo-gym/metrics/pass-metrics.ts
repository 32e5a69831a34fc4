import {
  pythonMean,
  pythonNumberOrFlag,
  pythonSum,
  type PythonNumber,
  quotient,
  writePython,
} from '../../fastapi/python-numbers.ts'

type Fields = Readonly<Record<string, unknown>>
type Tasks = readonly (readonly Fields[])[]
type Scores = ReadonlyMap<string, PythonNumber>

interface PassOptions {
  /** The field that holds the answer of a rollout: with it answers are put to the vote (`majority@k`). */
  readonly answerKey?: string
}

interface PassMetrics {
  readonly metrics: Record<string, unknown>
  /** The scores of each rollout of each task. */
  readonly scores: readonly (readonly Scores[])[]
  readonly names: readonly string[]
  readonly lastK: number
}

/** Where NeMo Gym's verifiers put an answer as they read it from a reply, and where its data says how hard a task is. */
const answerField = 'extracted_answer'
const subsetField = 'difficulty'
const noAnswer = 'no_answer'
/** The work grows with the square of the largest k. */
const maxK = 1_024

/** The metrics of NeMo Gym's servers that score by pass@k: of all tasks, of each sample, and of each difficulty. */
export function passMetrics(tasks: Tasks): Record<string, unknown> {
  const hasAnswers = tasks.some((rollouts) => rollouts.some((fields) => answerField in fields))
  const options: PassOptions = hasAnswers ? { answerKey: answerField } : {}
  const passed = passMajorityMetrics(tasks, options)
  return { ...passed.metrics, ...averageSampleDeviations(passed), ...subsetMetrics(tasks, options) }
}

/** pass@k, pass@1[avg-of-k], majority@k and the averages of each sample, in percent, by NeMo Gym's formulas. */
function passMajorityMetrics(tasks: Tasks, { answerKey }: PassOptions): PassMetrics {
  const metrics: Record<string, unknown> = {}
  const all = tasks.map((rollouts) => rollouts.map((fields) => scoresOf(fields, answerKey)))
  const answers = answerKey === undefined ? undefined : tasks.map((rollouts) => rollouts.map((one) => one[answerKey]))
  const names = Array.from(new Set(all.flat().flatMap((one) => Array.from(one.keys())))).sort(byCodePoint)
  const lastK = tasks.reduce((last, rollouts) => Math.max(last, Math.min(rollouts.length, maxK)), 0)
  const chances = new Map(names.map((name) => [name, all.map((rollouts) => passChances(valuesOf(rollouts, name)))]))
  for (let k = 1; k <= lastK; k += 1) {
    for (const name of names) {
      const passed = chances.get(name)?.flatMap((ofTask) => ofTask[k - 1] ?? []) ?? []
      set(metrics, `pass@${k}/${name}`, percentage(passed))
      const averages = all.flatMap((rollouts) => meanOf(valuesOf(rollouts.slice(0, k), name)) ?? [])
      set(metrics, `pass@1[avg-of-${k}]/${name}`, percentage(averages))
      if (!answers) continue
      const voted = all.map((rollouts, task) => vote(rollouts.slice(0, k), answers[task] ?? [], name))
      set(metrics, `majority@${k}/${name}`, percentage(voted))
    }
  }
  const perSample = perSampleAggregate(all, names, lastK)
  metrics['per_sample_aggregate'] = Object.fromEntries(perSample)
  for (let k = 2; k <= lastK; k += 1) {
    for (const name of names) {
      const runs = perSample.get(name)?.slice(0, k) ?? []
      const deviation = deviationOf(runs)
      if (deviation === undefined) continue
      metrics[`pass@1[avg-of-${k}]/${name}/std_dev_across_runs`] = deviation
      metrics[`pass@1[avg-of-${k}]/${name}/std_err_across_runs`] = deviation / Math.sqrt(runs.length)
    }
  }
  return { metrics, scores: all, names, lastK }
}

/** How far apart the first k rollouts of a task are, on average over the tasks. */
function averageSampleDeviations({ scores, names, lastK }: PassMetrics): Record<string, number> {
  const metrics: Record<string, number> = {}
  for (let k = 2; k <= lastK; k += 1) {
    for (const name of names) {
      const deviations = scores.flatMap((rollouts) => deviationOf(valuesOf(rollouts.slice(0, k), name)) ?? [])
      const mean = meanOf(deviations)
      if (mean !== undefined) metrics[`pass@1[avg-of-${k}]/${name}/avg_sample_std_dev`] = mean
    }
  }
  return metrics
}

/** The same for the tasks whose first rollout has the same value in this field. */
function subsetMetrics(tasks: Tasks, options: PassOptions): Record<string, unknown> {
  const named = tasks.flatMap((rollouts) => {
    const value = rollouts[0]?.[subsetField]
    return typeof value === 'string' && value !== '' ? [{ value, rollouts }] : []
  })
  const metrics: Record<string, unknown> = {}
  for (const [name, members] of Map.groupBy(named, ({ value }) => value)) {
    const of = passMajorityMetrics(
      members.map(({ rollouts }) => rollouts),
      options,
    )
    for (const [key, value] of Object.entries(of.metrics)) {
      if (key !== 'per_sample_aggregate') metrics[`${name}/${key}`] = value
    }
  }
  return metrics
}

/** A rollout without a reward has no score; NeMo Gym's formulas fail on it. */
function scoresOf(fields: Fields, answerKey: string | undefined): Scores {
  const scores = new Map<string, PythonNumber>()
  const reward = pythonNumberOrFlag(fields['reward'])
  if (reward !== undefined) scores.set('accuracy', reward)
  if (answerKey !== undefined) scores.set(noAnswer, isMissing(fields[answerKey]) ? 1n : 0n)
  return scores
}

function isMissing(answer: unknown): boolean {
  return answer === undefined || answer === null
}

function valuesOf(rollouts: readonly Scores[], name: string): readonly PythonNumber[] {
  return rollouts.flatMap((scores) => scores.get(name) ?? [])
}

function meanOf(values: readonly PythonNumber[]): number | undefined {
  return values.length === 0 ? undefined : pythonMean(values)
}

function percentage(values: readonly PythonNumber[]): number | undefined {
  return values.length === 0 ? undefined : (100 * Number(pythonSum(values))) / values.length
}

function set(metrics: Record<string, unknown>, name: string, value: number | undefined): void {
  if (value !== undefined) metrics[name] = value
}

/** For each k: the chance that one of k of these passes; of scores that are not 0 or 1, the best of the first k. */
function passChances(values: readonly PythonNumber[]): readonly PythonNumber[] {
  const upToK = values.slice(0, maxK)
  if (!values.every((value) => Number(value) === 0 || Number(value) === 1)) {
    let best = upToK[0] ?? 0n
    return upToK.map((value) => (best = value > best ? value : best))
  }
  const failed = values.filter((value) => Number(value) === 0).length
  let failures = 1n
  let choices = 1n
  return upToK.map((_, index) => {
    if (failed <= index) return 1
    failures = (failures * BigInt(failed - index)) / BigInt(index + 1)
    choices = (choices * BigInt(values.length - index)) / BigInt(index + 1)
    return 1 - quotient(failures, choices)
  })
}

/** The mean score of the answers that were given most often; 0 if there is none. The same answer with another score is another one. */
function vote(rollouts: readonly Scores[], answers: readonly unknown[], name: string): PythonNumber {
  const votes = new Map<string, { readonly score: PythonNumber; count: number }>()
  for (const [index, scores] of rollouts.entries()) {
    const score = scores.get(name)
    const answer = answers[index]
    if (score === undefined || isMissing(answer)) continue
    const key = `${Number(score)} ${answerText(answer)}`
    const found = votes.get(key)
    if (found) found.count += 1
    else votes.set(key, { score, count: 1 })
  }
  if (votes.size === 0) return 0n
  const most = Math.max(...Array.from(votes.values(), ({ count }) => count))
  return pythonMean(Array.from(votes.values()).flatMap(({ score, count }) => (count === most ? [score] : [])))
}

/** Python takes 1, 1.0 and true for the same answer. */
function answerText(answer: unknown): string {
  const number = pythonNumberOrFlag(answer)
  return number === undefined ? writePython(answer) : String(Number(number))
}

function perSampleAggregate(
  all: readonly (readonly Scores[])[],
  names: readonly string[],
  lastK: number,
): Map<string, readonly number[]> {
  const samples = Array.from({ length: lastK }, (_, index) => all.flatMap((rollouts) => rollouts[index] ?? []))
  const entries = names.map((name): [string, readonly number[]] => [
    name,
    samples.flatMap((scores) => percentage(valuesOf(scores, name)) ?? []),
  ])
  return new Map(entries.filter(([, averages]) => averages.length > 0))
}

/** Of a sample (n - 1); undefined for less than two values. */
function deviationOf(values: readonly PythonNumber[]): number | undefined {
  if (values.length < 2) return undefined
  const mean = pythonMean(values)
  const squares = values.map((value) => (Number(value) - mean) ** 2)
  return Math.sqrt(Number(pythonSum(squares)) / (values.length - 1))
}

function byCodePoint(a: string, b: string): number {
  return Buffer.compare(Buffer.from(a), Buffer.from(b))
}

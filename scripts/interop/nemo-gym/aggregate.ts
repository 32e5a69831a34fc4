import { spawn } from 'node:child_process'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { aggregateMetricsReply } from '../../../src/serve/compat/nemo-gym/metrics/aggregate-metrics.ts'
import { aggregateDifference } from '../../../test/support/serve/aggregate-difference.ts'
import { aggregateBodies } from './aggregate-cases.ts'

const fixture = join(import.meta.dirname, '..', '..', '..', 'test', 'fixtures', 'nemo-gym', 'aggregate-metrics.jsonl')

interface TheirReply {
  readonly status: number
  readonly text: string
}

/** What NeMo Gym answers to these bodies, in their order. `python` is one in whose environment it is installed. */
export async function* theirReplies(python: string, bodies: readonly string[]): AsyncGenerator<TheirReply, void, void> {
  const script = join(import.meta.dirname, 'aggregate_metrics.py')
  const child = spawn(python, [script], { stdio: ['pipe', 'pipe', 'inherit'] })
  try {
    child.stdin.end(bodies.map((body) => `${body}\n`).join(''))
    for await (const line of createInterface({ input: child.stdout })) yield JSON.parse(line) as TheirReply
  } finally {
    child.kill()
  }
}

interface Comparison {
  readonly same: number
  /** Bodies on which NeMo Gym itself fails, such as integers too close together for a histogram that it then drops. */
  readonly failedThere: number
  readonly differences: readonly string[]
}

/** Compares our replies with those of the package, to the last digit, the kind of each number and the order of keys. */
export async function compareAggregates(python: string, { count = 300, seed = 1 } = {}): Promise<Comparison> {
  const bodies = [...aggregateBodies(count, { seed })]
  const differences: string[] = []
  let same = 0
  let failedThere = 0
  let answered = 0
  for await (const { status, text } of theirReplies(python, bodies)) {
    const body = bodies[answered] ?? ''
    answered += 1
    if (status !== 200) {
      failedThere += 1
      continue
    }
    const difference = aggregateDifference(text, aggregateMetricsReply(Buffer.from(body)))
    if (difference === undefined) same += 1
    else differences.push(`body ${answered}: ${difference}`)
  }
  if (answered < count) differences.push(`NeMo Gym answered ${answered} of ${count} bodies`)
  return { same, failedThere, differences }
}

const fixtureSeed = 30
const fixtureLines = 60
const fixtureTasks = 3
const maxFixtureCharacters = 4_000

/** Writes the fixture of the unit test: the smaller ones of some bodies, with what NeMo Gym 0.4.0 answers to them. */
async function writeFixture(python: string): Promise<void> {
  const bodies = [...aggregateBodies(8 * fixtureLines, { seed: fixtureSeed, maxTasks: fixtureTasks })]
  const lines: string[] = []
  let index = 0
  for await (const { status, text } of theirReplies(python, bodies)) {
    const body = bodies[index] ?? ''
    index += 1
    if (status !== 200 || text.length > maxFixtureCharacters || lines.length === fixtureLines) continue
    lines.push(JSON.stringify({ body, reply: text }))
  }
  await writeFile(fixture, lines.map((line) => `${line}\n`).join(''))
}

// node scripts/interop/nemo-gym/aggregate.ts <python>
const [, program = '', python] = process.argv
if (program === import.meta.filename && python !== undefined) await writeFixture(python)

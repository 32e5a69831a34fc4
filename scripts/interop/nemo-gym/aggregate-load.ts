import assert from 'node:assert/strict'
import { setTimeout as wait } from 'node:timers/promises'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { check } from '../part.ts'
import { runProgram } from '../run-program.ts'
import { largeAggregateBody } from './aggregate-cases.ts'
import type { GymBench } from './gym-bench.ts'

const rowsHere = 10_000
const rowsThere = 1_000
const pingEveryMs = 5
const answerMs = 5 * 60_000
/** For ten times the rows. */
const leastRatio = 20

interface Held {
  /** The longest that anybody else waited for a reply of the server. */
  readonly longestMs: number
  readonly tookMs: number
}

/** How long the metrics of many rows hold up a server for everybody else: every row is a task of its own. */
export async function aggregateLoad(bench: GymBench): Promise<string> {
  await using millrace = await bench.serve()
  const there = await heldUp(bench, bench.servers.url('counter'), rowsThere)
  const here = await heldUp(bench, `http://${millrace.head}`, rowsHere)
  const sides = [
    [rowsHere, here, 'here'],
    [rowsThere, there, 'there'],
  ] as const
  const shown = sides.map(([rows, { longestMs, tookMs }, side]) => {
    return `${rows} rows took ${(tookMs / 1000).toFixed(2)} s ${side}, and a request beside them up to ${longestMs.toFixed(0)} ms`
  })
  const text = shown.join('; ')
  assert.ok(there.longestMs / here.longestMs >= leastRatio, `${text}; at least ${leastRatio} times less is required`)
  return text
}

async function heldUp({ folder }: GymBench, url: string, rows: number): Promise<Held> {
  const [body, reply] = [join(folder, `aggregate-${rows}.json`), join(folder, `aggregate-${rows}-reply.json`)]
  await writeFile(body, largeAggregateBody(rows, 1))
  const done = new AbortController()
  // Another process sends it, so that this one has time to look.
  const json = ['-H', 'content-type: application/json', '--data-binary', `@${body}`, '-o', reply]
  const words = ['--silent', '--show-error', '--fail', ...json, `${url}/aggregate_metrics`]
  const pinged = longestPing(url, done.signal)
  const started = performance.now()
  const sent = await runProgram('curl', words, { timeoutMs: answerMs })
  const tookMs = performance.now() - started
  done.abort()
  const longestMs = await pinged
  check(sent, 'the metrics were not answered')
  const { group_level_metrics: groups } = JSON.parse(await readFile(reply, 'utf8')) as {
    readonly group_level_metrics: readonly unknown[]
  }
  assert.equal(groups.length, rows, 'tasks in the reply')
  return { longestMs, tookMs }
}

async function longestPing(url: string, done: AbortSignal): Promise<number> {
  let longestMs = 0
  while (!done.aborted) {
    const started = performance.now()
    await (await fetch(url)).text()
    longestMs = Math.max(longestMs, performance.now() - started)
    await wait(pingEveryMs)
  }
  return longestMs
}

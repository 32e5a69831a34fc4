import assert from 'node:assert/strict'
import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { check, type Counts, runCase, say, sumOf } from '../part.ts'
import { runProgram } from '../run-program.ts'
import { compareRun, type Found, rescore } from './compare.ts'
import { evaluateRollouts, firstPromptOf, type RunOptions, talkThroughGateway, turns } from './conversations.ts'
import { EngineLedger } from './ledger.ts'
import { installVllm, makeModel, VllmServer } from './vllm.ts'

const millrace = join(import.meta.dirname, '..', '..', '..', 'bin', 'millrace.js')
const commandMs = 2 * 60_000
const count = 50
const rescoredRows = 20
/** Batches are summed in another order than one prompt. */
const tolerance = 1e-3

const generatePath = '/inference/v1/generate'
const paths = { [generatePath]: [], '/v1/completions': [generatePath] } as const

/**
 * A real engine: vLLM on the CPU, with a tiny model that writes noise, reasoning and tool calls. The engine is installed into the folder that
 * MILLRACE_INTEROP_CACHE names, to be used again, or else into one that is removed.
 */
export async function engines(folder: string): Promise<Counts> {
  const environment = await installVllm(process.env['MILLRACE_INTEROP_CACHE'] ?? folder)
  const model = join(folder, 'tiny')
  await makeModel(environment, model)
  await using engine = await VllmServer.start(environment, model)
  const bench = new EngineBench(engine.url, folder)
  say(`${count} sessions of ${turns} turns over three APIs, and as many rollouts, at temperature 1`)
  const counts: Counts[] = []
  for (const [path, closed] of Object.entries(paths)) {
    counts.push(await runCase(`doctor, ${path}`, () => bench.doctor(path, closed)))
    counts.push(await runCase(`sessions with exact tokens, ${path}`, () => bench.exactSessions(path, closed)))
  }
  counts.push(await runCase('sessions without exact tokens', () => bench.driftingSessions()))
  counts.push(await runCase('rollouts with exact tokens', () => bench.exactRollouts()))
  counts.push(await runCase('rollouts without exact tokens', () => bench.driftingRollouts()))
  return sumOf(counts)
}

class EngineBench {
  readonly #engine: string
  readonly #folder: string
  #runs = 0

  constructor(engine: string, folder: string) {
    this.#engine = engine
    this.#folder = folder
  }

  async doctor(path: string, closed: readonly string[]): Promise<string> {
    await using ledger = await EngineLedger.start(this.#engine, closed)
    const words = [millrace, 'doctor', '-m', 'tiny', '--base-url', `${ledger.url}/v1`, '--json']
    const ran = await runProgram(process.execPath, ['--no-warnings', ...words], { timeoutMs: commandMs })
    check(ran, 'millrace doctor failed')
    const { backends } = JSON.parse(ran.output) as { backends: readonly object[] }
    assert.equal(backends.length, 1)
    assert.partialDeepStrictEqual(backends[0], { path, isTokenizerCompared: true, isTemplateCompared: true })
    return 'takes ids, and has the same tokenizer and chat template'
  }

  async exactSessions(path: string, closed: readonly string[]): Promise<string> {
    let asked = 0
    // The weights get a new version some twenty times.
    const onTurn = async (): Promise<void> => {
      asked += 1
      if (asked % 12 === 0) await this.#setVersion(`v${asked}`)
    }
    const { found, ledger } = await this.#run(talkThroughGateway, { isExact: true, closed, onTurn })
    assert.deepEqual([...new Set(ledger.entries.map((entry) => entry.path))], [path], 'paths that were asked')
    const first = await firstPromptOf(this.#engine)
    const firsts = ledger.entries.filter(({ promptIds }) => promptIds.length === first.length)
    assert.equal(firsts.length, count, 'first prompts as long as the engine renders them')
    for (const { promptIds } of firsts) assert.deepEqual(promptIds, first, 'a first prompt as the engine renders it')
    const versions = new Set(ledger.entries.flatMap((entry) => entry.versions)).size
    if (path === generatePath) assert.ok(versions > 5, `${versions} weight versions`)
    const text = await this.#exact(found)
    return versions > 0 ? `${text}; ${versions} weight versions` : text
  }

  async exactRollouts(): Promise<string> {
    const { found } = await this.#run(evaluateRollouts, { isExact: true })
    return await this.#exact(found)
  }

  async driftingSessions(): Promise<string> {
    const { found } = await this.#run(talkThroughGateway, { isExact: false })
    return drifted(found)
  }

  async driftingRollouts(): Promise<string> {
    const { found } = await this.#run(evaluateRollouts, { isExact: false })
    return drifted(found)
  }

  async #run(
    make: (options: RunOptions) => Promise<string>,
    { isExact, closed = [], onTurn }: Pick<RunOptions, 'isExact' | 'onTurn'> & { readonly closed?: readonly string[] },
  ): Promise<{ readonly found: Found; readonly ledger: EngineLedger }> {
    await using ledger = await EngineLedger.start(this.#engine, closed)
    this.#runs += 1
    const folder = join(this.#folder, `run-${this.#runs}`)
    await mkdir(folder)
    const run = await make({ url: ledger.url, folder, isExact, count, ...(onTurn && { onTurn }) })
    const found = await compareRun(run, ledger)
    assert.equal(found.conversations, count)
    assert.equal(found.replies, count * turns)
    assert.ok(found.calls > count / 2, `only ${found.calls} tool calls`)
    return { found, ledger }
  }

  async #exact(found: Found): Promise<string> {
    const { rows, splitRows, driftedTurns, laterTurns } = found
    assert.deepEqual({ rows, splitRows, driftedTurns }, { rows: count, splitRows: 0, driftedTurns: 0 })
    assert.equal(laterTurns, count * (turns - 1))
    const difference = await rescore(this.#engine, found.merged.slice(0, rescoredRows))
    assert.ok(
      difference < tolerance,
      `log-probabilities differ by ${difference} from those of the same ids in a prompt`,
    )
    return `${summary(found)}; log-probabilities within ${difference.toExponential(1)} of the same ids in one prompt`
  }

  async #setVersion(version: string): Promise<void> {
    const body = JSON.stringify({ new_version: version })
    const headers = { 'content-type': 'application/json' }
    const { ok } = await fetch(`${this.#engine}/update_weight_version`, { method: 'POST', headers, body })
    assert.ok(ok, 'the engine takes no weight version')
  }
}

/** Without exact tokens nothing may be trained wrongly, but rows are split. If none is, the model is too tame to show anything. */
function drifted(found: Found): string {
  const { driftedTurns, laterTurns, driftedTokens, splitRows } = found
  assert.ok(
    driftedTurns > 0 && splitRows > 0,
    'nothing has drifted: the model samples nothing that comes back as other tokens',
  )
  return `${summary(found)}; ${driftedTurns} of ${laterTurns} later turns drifted, ${driftedTokens} tokens affected`
}

function summary({ replies, sampled, calls, cutOff, rows, splitRows }: Found): string {
  return `${replies} replies, ${sampled} sampled tokens, ${calls} calls, ${cutOff} cut off; ${rows} rows, ${splitRows} split`
}

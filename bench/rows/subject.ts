/** One way from a stored run to rows, in a process of its own; answers with its figures. */
import { createReadStream, createWriteStream } from 'node:fs'
import { createInterface } from 'node:readline'
import { pipeline } from 'node:stream/promises'
import { exportRollouts, RunReader } from '../../src/store/index.ts'
import { exportRows, type ExportRowsOptions } from '../../src/rows/index.ts'
import { mergeRollout } from './naive.ts'

export interface RowsInput {
  /** `lines`: the rollouts with their tokens as JSON. `naive`: rows made from these lines. */
  readonly step: 'rows' | 'lines' | 'naive'
  readonly rows: ExportRowsOptions['rows']
  readonly format: ExportRowsOptions['format']
  readonly folder: string
  readonly file: string
}

export interface RowsFigures {
  readonly rows: number
  readonly trainedTokens: number
  readonly wallMs: number
  readonly cpuMs: number
  readonly peakMemoryMb: number
}

const input = JSON.parse(process.argv[2] ?? '') as RowsInput

type Counts = Pick<RowsFigures, 'rows' | 'trainedTokens'>

const steps: Readonly<Record<RowsInput['step'], () => Promise<Counts>>> = {
  rows: () => exportTo(input.file),
  async lines() {
    using reader = RunReader.open(input.folder)
    const lines = exportRollouts(reader, { format: 'jsonl', tokens: true, taskRows: false })
    await pipeline(lines, createWriteStream(input.file))
    return { rows: 0, trainedTokens: 0 }
  },
  async naive() {
    const counts = { rows: 0, trainedTokens: 0 }
    for await (const line of createInterface({ input: createReadStream(input.file) })) {
      for (const row of mergeRollout(line)) {
        counts.rows += 1
        for (const trained of row.mask) counts.trainedTokens += trained
      }
    }
    return counts
  },
}

/** Exports the run, or one group of it. */
async function exportTo(file: string, group?: string): Promise<Counts> {
  using reader = RunReader.open(input.folder)
  const { rows, format } = input
  let counts: Counts = { rows: 0, trainedTokens: 0 }
  const chunks = async function* (): AsyncGenerator<Uint8Array> {
    counts = yield* exportRows(reader, { rows, format, advantage: 'grpo', ...(group !== undefined && { group }) })
  }
  await pipeline(chunks(), createWriteStream(file))
  return counts
}

// Not part of any figure: loading modules, and the time until V8 has compiled what a step needs.
const warmUpGroups = 20
if (input.step === 'rows') {
  for (let group = 0; group < warmUpGroups; group += 1) await exportTo(`${input.file}.warm`, String(group))
}
const startedAt = performance.now()
const cpuBefore = process.cpuUsage()
const { rows, trainedTokens } = await steps[input.step]()
const { user, system } = process.cpuUsage(cpuBefore)
const figures: RowsFigures = {
  rows,
  trainedTokens,
  wallMs: performance.now() - startedAt,
  cpuMs: (user + system) / 1000,
  peakMemoryMb: process.resourceUsage().maxRSS / 1024,
}
console.log(JSON.stringify(figures))

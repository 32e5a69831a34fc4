/**
 * npm run bench -- <name> [--quick] [--json]
 * Runs bench/<name>/run.ts: a readable table on the way, and with --json one JSON object as the last line.
 */
import { execFileSync } from 'node:child_process'
import { readdirSync } from 'node:fs'
import { arch, cpus, loadavg, platform, totalmem } from 'node:os'
import { parseArgs } from 'node:util'
import type { Benchmark } from './shared/benchmark.ts'

const names = readdirSync(import.meta.dirname, { withFileTypes: true })
  .filter((entry) => entry.isDirectory() && entry.name !== 'shared')
  .map(({ name: folder }) => folder)

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { quick: { type: 'boolean', default: false }, json: { type: 'boolean', default: false } },
})
const name = positionals[0]
if (!name || !names.includes(name)) {
  console.error(`usage: npm run bench -- <${names.join('|')}> [--quick] [--json]`)
  process.exit(2)
}

const { benchmark } = (await import(`./${name}/run.ts`)) as { benchmark: Benchmark }
// Progress goes to stderr, so that stdout ends with the one JSON object.
const say = (line: string): void => void process.stderr.write(`${line}\n`)
const loadBefore = loadavg()[0] ?? 0
const result = await benchmark({ isQuick: values.quick, say })
for (const line of result.table) console.log(line)
console.log()
for (const bar of result.bars) {
  const mark = bar.holds ? 'holds' : 'FAILS'
  console.log(`${mark}  ${bar.name}: ${round(bar.value)} (bar ${bar.bar})`)
}
if (values.json) {
  const machine = {
    cpu: cpus()[0]?.model.trim() ?? 'unknown',
    cores: cpus().length,
    memoryGiB: Math.round(totalmem() / 2 ** 30),
    os: `${platform()} ${arch()}`,
    node: process.version,
    loadBefore: round(loadBefore),
  }
  const { figures } = result
  const bars = result.bars.map((bar) => ({ ...bar, value: round(bar.value) }))
  console.log(JSON.stringify({ bench: name, commit: commit(), machine, figures, bars }))
}
if (result.bars.some((bar) => !bar.holds)) process.exitCode = 1

function commit(): string {
  try {
    const head = execFileSync('git', ['rev-parse', '--short', 'HEAD'], { encoding: 'utf8' }).trim()
    const isDirty = execFileSync('git', ['status', '--porcelain'], { encoding: 'utf8' }).trim() !== ''
    return isDirty ? `${head}-dirty` : head
  } catch {
    return 'unknown'
  }
}

function round(value: number): number {
  return Number(value.toPrecision(4))
}

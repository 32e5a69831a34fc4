/**
 * Runs all tests, or those that its words select as Vitest takes them. Where a process of the runner was ended by a signal,
 * its file runs once more, by itself: V8 now and then aborts a process in which threads come and go (nodejs/node#64500,
 * `Check failed: jit_page.has_value()`). A test that failed is never repeated, and a second crash of the same file is a
 * failure.
 */
import { spawn } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { stripVTControlCharacters } from 'node:util'

const crash = /Worker exited unexpectedly with signal (SIG\w+) .*while running test file (\S+)/g

// Tests start hundreds of processes and threads of ours: each then need not compile the same modules again.
const compiled = mkdtempSync(join(tmpdir(), 'millrace-compiled-'))
const env = { ...process.env, NODE_COMPILE_CACHE: compiled }
process.once('exit', () => rmSync(compiled, { recursive: true, force: true }))

const first = await vitest(...process.argv.slice(2))
const output = stripVTControlCharacters(first.output)
const crashes = [...output.matchAll(crash)]
const hasFailures = /^ *(Tests|Test Files) .*failed/m.test(output)
const errors = Number(/^ *Errors +(\d+) error/m.exec(output)?.[1] ?? 0)
// Whatever else went wrong counts as it is.
if (first.code === 0 || hasFailures || crashes.length === 0 || crashes.length !== errors) process.exit(first.code)
for (const [, signal, file] of crashes) {
  process.stdout.write(`\n${file}: its process was ended by ${signal}; it runs once more, by itself\n`)
}
const files = [...new Set(crashes.map(([, , file = '']) => file))]
const second = await vitest(...files)
process.exit(second.code)

function vitest(...words: readonly string[]): Promise<{ code: number; output: string }> {
  return new Promise((resolve, reject) => {
    const child = spawn('vitest', ['run', ...words], { stdio: ['ignore', 'pipe', 'pipe'], env })
    let printed = ''
    for (const [stream, target] of [
      [child.stdout, process.stdout],
      [child.stderr, process.stderr],
    ] as const) {
      stream.setEncoding('utf8')
      stream.on('data', (text: string) => {
        printed += text
        target.write(text)
      })
    }
    child.once('error', reject)
    child.once('close', (code) => resolve({ code: code ?? 1, output: printed }))
  })
}

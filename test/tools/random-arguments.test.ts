import { spawn } from 'node:child_process'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { seeded } from '../support/tools/seeded.ts'

const reader = fileURLToPath(new URL('../support/tools/random-arguments.ts', import.meta.url))
const count = 20_000
/** One text takes a millisecond, and half a second if it is given up on. */
const patienceMs = 120_000

test('parsing tool arguments terminates for any input of the model', () =>
  seeded(async (random) => {
    const child = spawn(process.execPath, [reader, String(random(1_000_000)), String(count)], {
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    const ended = Promise.withResolvers<number | null>()
    child.once('close', ended.resolve).once('error', ended.reject)
    const watchdog = setTimeout(() => child.kill('SIGKILL'), patienceMs)
    let texts = 0
    let last = ''
    for await (const line of createInterface({ input: child.stdout })) {
      texts += 1
      last = line
      watchdog.refresh()
    }
    const code = await ended.promise
    clearTimeout(watchdog)
    expect({ code, texts }, `it did not come back from ${last}`).toEqual({ code: 0, texts: count })
  }))

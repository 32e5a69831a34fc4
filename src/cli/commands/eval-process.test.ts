import { spawn, type ChildProcessWithoutNullStreams } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { text } from 'node:stream/consumers'
import { fileURLToPath } from 'node:url'
import { describe, expect, it } from 'vitest'
import { temporaryRuns } from '../../testing/index.ts'

const bin = fileURLToPath(new URL('../../../bin/millrace.js', import.meta.url))

function millrace(cwd: string, ...words: string[]): ChildProcessWithoutNullStreams {
  return spawn(process.execPath, [bin, ...words], { cwd, env: { PATH: process.env['PATH'], NO_COLOR: '1' } })
}

async function outcome(child: ChildProcessWithoutNullStreams) {
  const [stdout, stderr, [code]] = await Promise.all([
    text(child.stdout),
    text(child.stderr),
    once(child, 'close') as Promise<[number]>,
  ])
  return { code, stdout, stderr }
}

function summaryOf(stdout: string): unknown {
  return JSON.parse(stdout.trimEnd().split('\n').at(-1) ?? '')
}

describe('millrace as a process', () => {
  it('runs what init wrote, at once', async () => {
    await using folder = await temporaryRuns()
    expect(await outcome(millrace(folder.root, 'init', 'mine'))).toMatchObject({ code: 0, stderr: '' })
    const ran = await outcome(millrace(folder.root, 'eval', './mine/environment.ts', '-m', 'sim', '--json'))
    expect(ran).toMatchObject({ code: 0, stderr: '' })
    expect(summaryOf(ran.stdout)).toMatchObject({ environment: 'mine', rollouts: 20, scored: 20, score: { mean: 1 } })
  })

  it('drains on SIGINT, and the same command continues to the end', async () => {
    await using folder = await temporaryRuns()
    const words = [
      'eval',
      'arithmetic',
      '-m',
      'sim',
      '-c',
      '4',
      '--limit',
      '40',
      '--sim.ttftMs=60',
      '--json',
      '--run',
      'it',
    ]
    const child = millrace(folder.root, ...words)
    const stderr = text(child.stderr)
    const closed = once(child, 'close') as Promise<[number]>
    let ended = 0
    for await (const line of createInterface({ input: child.stdout })) {
      if (!line.includes('"type":"rollout"')) continue
      ended += 1
      if (ended === 4) child.kill('SIGINT')
    }
    expect((await closed)[0]).toBe(130)
    expect(await stderr).toContain(`millrace ${words.join(' ')}`)
    expect(ended).toBeLessThan(40)
    const again = await outcome(millrace(folder.root, ...words))
    expect(again.code).toBe(0)
    expect(summaryOf(again.stdout)).toMatchObject({ rollouts: 40, scored: 40, end: 'complete' })
    expect(again.stdout.match(/"type":"rollout"/g)).toHaveLength(40 - ended)
  })
})

import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { Writable } from 'node:stream'
import { describe, expect, it } from 'vitest'
import { temporaryRuns } from '../testing/index.ts'
import { fakeProcess } from './_testing/fake-terminal.ts'
import { loadEnvFile } from './process/load-env-file.ts'
import { main } from './main.ts'

async function run(...words: string[]) {
  const parts = fakeProcess()
  const code = await main(words, parts)
  return { code, stdout: parts.stdout.text, stderr: parts.stderr.text }
}

const names = ['eval', 'show', 'list', 'export', 'prune', 'sim', 'init']

describe('main', () => {
  it.each([[], ['help'], ['--help'], ['-h']])('%j lists the commands', async (...words: string[]) => {
    const { code, stdout, stderr } = await run(...words)
    expect(code).toBe(0)
    for (const name of names) expect(stdout).toMatch(new RegExp(`^ {2}${name} `, 'm'))
    expect(stderr).toBe('')
  })

  it.each(names)('%s explains itself, either way', async (name) => {
    const asked = await run(name, '--help')
    expect(asked).toMatchObject({ code: 0, stderr: '' })
    expect(asked.stdout).toMatch(new RegExp(`^Usage: millrace ${name}`))
    expect(asked.stdout).toContain('Examples')
    expect(asked.stdout).toContain('Exit codes')
    expect(await run('help', name)).toEqual(asked)
  })

  it('says its version', async () => {
    expect((await run('--version')).stdout).toMatch(/^\d+\.\d+\.\d+\n$/)
  })

  it.each([
    [['evla'], 'unknown command evla; did you mean millrace eval?'],
    [['frobnicate'], 'unknown command frobnicate; millrace --help lists all commands'],
    [['--frobnicate'], 'unknown flag --frobnicate; millrace --help lists all commands'],
    [['eval', 'x', '--concurency=4'], 'unknown flag --concurency; did you mean --concurrency?'],
  ])('refuses %j with the way out', async (words, message) => {
    const { code, stdout, stderr } = await run(...words)
    expect(code).toBe(2)
    expect(stdout).toBe('')
    expect(stderr).toBe(`error: ${message} [usage]\n`)
  })
})

describe('loadEnvFile', () => {
  it('adds what is not set and overrides nothing', async () => {
    await using runs = await temporaryRuns()
    const folder = runs.root
    writeFileSync(join(folder, '.env'), 'A=file\nB="two words"\n')
    const env: Record<string, string | undefined> = { A: 'shell' }
    loadEnvFile(folder, env)
    expect(env).toEqual({ A: 'shell', B: 'two words' })
    loadEnvFile(join(folder, 'missing'), env)
  })

  it('fails if the last that it said was not written', async () => {
    const parts = fakeProcess()
    const full = Object.assign(new Error('ENOSPC: no space left on device, write'), { code: 'ENOSPC' })
    const stdout = new Writable({ write: (_chunk, _encoding, done) => done(full) })
    expect(await main(['--version'], { ...parts, stdout })).toBe(1)
    expect(parts.stderr.text).toContain('the disk that the output goes to is full')
  })
})

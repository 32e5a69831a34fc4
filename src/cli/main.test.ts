import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { Writable } from 'node:stream'
import { describe, expect, it } from 'vitest'
import { temporaryRuns } from '../testing/index.ts'
import { fakeProcess } from '../../test/support/cli/fake-terminal.ts'
import { loadEnvFile } from './terminal/io.ts'
import { main } from './main.ts'

async function run(...args: string[]) {
  const parts = fakeProcess()
  const code = await main(args, parts)
  return { code, stdout: parts.stdout.text, stderr: parts.stderr.text }
}

const names = ['eval', 'show', 'list', 'export', 'prune', 'sim', 'init']

describe('main', () => {
  it.each([[], ['help'], ['--help'], ['-h']])('%j lists the commands', async (...args: string[]) => {
    const { code, stdout, stderr } = await run(...args)
    expect(code).toBe(0)
    for (const name of names) expect(stdout).toMatch(new RegExp(`^ {2}${name} `, 'm'))
    expect(stderr).toBe('')
  })

  it.each(names)('%s has the same help by --help and by help', async (name) => {
    const asked = await run(name, '--help')
    expect(asked).toMatchObject({ code: 0, stderr: '' })
    expect(asked.stdout).toMatch(new RegExp(`^Usage: millrace ${name}`))
    expect(asked.stdout).toContain('Examples')
    expect(asked.stdout).toContain('Exit codes')
    expect(await run('help', name)).toEqual(asked)
  })

  it('prints its version', async () => {
    expect((await run('--version')).stdout).toMatch(/^\d+\.\d+\.\d+\n$/)
  })

  it.each([
    [['evla'], 'unknown command evla; did you mean millrace eval?'],
    [['frobnicate'], 'unknown command frobnicate; millrace --help lists all commands'],
    [['--frobnicate'], 'unknown flag --frobnicate; millrace --help lists all commands'],
    [['eval', 'x', '--concurency=4'], 'unknown flag --concurency; did you mean --concurrency?'],
  ])('refuses %j and suggests a command', async (args, message) => {
    const { code, stdout, stderr } = await run(...args)
    expect(code).toBe(2)
    expect(stdout).toBe('')
    expect(stderr).toBe(`error: ${message} [usage]\n`)
  })
})

describe('loadEnvFile', () => {
  it('adds missing variables and overrides none', async () => {
    await using runs = await temporaryRuns()
    const folder = runs.root
    writeFileSync(join(folder, '.env'), 'A=file\nB="two words"\n')
    const env: Record<string, string | undefined> = { A: 'shell' }
    loadEnvFile(folder, env)
    expect(env).toEqual({ A: 'shell', B: 'two words' })
    expect(loadEnvFile(join(folder, 'missing'), env)).toBeUndefined()
  })

  it.each([
    ['A=1\nKEY sk-123\nB=2\n', 'line 2 of .env is not NAME=value and is ignored'],
    ['KEY: sk-123\r\nB=2\r\n=3\r\n', 'lines 1, 3 of .env are not NAME=value and are ignored'],
    ['M="one\ntwo"\nexport D\nN=1', 'line 3 of .env is not NAME=value and is ignored'],
    ['x\n'.repeat(7), 'lines 1, 2, 3, 4, 5 and 2 more of .env are not NAME=value and are ignored'],
    ['\uFEFFA=1\n\n  # a note: "\nexport B = \'two\n=3\'\nC=it\'s\nD=# none\nE="\\"', undefined],
  ])('names the invalid lines of %j, but not their content', async (text, notice) => {
    await using runs = await temporaryRuns()
    writeFileSync(join(runs.root, '.env'), text)
    expect(loadEnvFile(runs.root, {})).toBe(notice)
    const parts = { ...fakeProcess(), cwd: runs.root, env: {} }
    expect(await main(['list'], parts)).toBe(0)
    expect(parts.stderr.text).toBe(notice === undefined ? '' : `notice: ${notice}\n`)
  })

  it('reads a file with a byte order mark, and ignores a folder of that name', async () => {
    await using runs = await temporaryRuns()
    writeFileSync(join(runs.root, '.env'), '\uFEFFA=1\n')
    const env: Record<string, string | undefined> = {}
    loadEnvFile(runs.root, env)
    expect(env).toEqual({ A: '1' })
    mkdirSync(join(runs.root, 'sub', '.env'), { recursive: true })
    expect(loadEnvFile(join(runs.root, 'sub'), env)).toBeUndefined()
  })

  it('fails if its last output was not written', async () => {
    const parts = fakeProcess()
    const full = Object.assign(new Error('ENOSPC: no space left on device, write'), { code: 'ENOSPC' })
    const stdout = new Writable({ write: (_chunk, _encoding, done) => done(full) })
    expect(await main(['--version'], { ...parts, stdout })).toBe(1)
    expect(parts.stderr.text).toContain('the disk of the output is full')
  })
})

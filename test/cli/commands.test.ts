import { spawnSync } from 'node:child_process'
import { readFile, readdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { temporaryRuns } from 'millrace/testing'
import { describe, expect, it } from 'vitest'
import { fixture, millrace, objects, startMillrace } from '../support/cli/millrace-process.ts'

const counting = ['eval', fixture('counting.ts'), '-m', 'sim', '--seed', '5']

describe.concurrent('the commands show, export and list', () => {
  it('work on a run that is still running, which list shows as running', async () => {
    await using place = await temporaryRuns()
    const cwd = place.root
    const words = [...counting, '--env.count=10000', '-c', '4', '--sim.ttftMs=25', '--run', 'it', '--json']
    await using running = startMillrace({ cwd }, ...words)
    await running.shows('stdout', '"type":"rollout"', 6)
    const shown = await millrace({ cwd }, 'show', 'it', '--json')
    expect(shown).toMatchObject({ code: 0, stderr: '' })
    const summary = objects(shown.stdout)[0]
    expect(summary).toMatchObject({ run: 'it', end: 'running', environment: 'counting', score: { mean: 1 } })
    expect(summary?.['rollouts']).toBeGreaterThanOrEqual(6)
    expect((await millrace({ cwd }, 'list')).stdout).toMatch(/^it +running +counting +sim +\d+ +1\.000 +just now$/m)
    const exported = objects((await millrace({ cwd }, 'export', 'it')).stdout)
    expect(exported.length).toBeGreaterThanOrEqual(6)
    expect(exported[0]).toMatchObject({ outcome: 'completed', messages: [{ role: 'user' }, {}, {}, {}] })
    const pruned = await millrace({ cwd }, 'prune', '--keep', '0', '--unfinished', '--yes')
    expect(pruned).toMatchObject({ code: 0, stdout: `nothing to delete in ${join(cwd, 'runs')}\n` })
  })

  it('print the score table, a transcript, and the rollouts of one outcome', async () => {
    await using place = await temporaryRuns()
    const cwd = place.root
    const mend = `--env.mend=${join(cwd, 'never')}`
    const ran = await millrace({ cwd }, 'eval', fixture('mended.ts'), '-m', 'sim', mend, '--run', 'it', '--quiet')
    expect(ran.code).toBe(3)
    const shown = await millrace({ cwd }, 'show', 'it')
    expect(shown.code).toBe(0)
    for (const text of [ran.stdout, shown.stdout]) {
      expect(text).toMatch(/reward +1\.000 +too few tasks for an interval/)
      expect(text).toMatch(/over +4 of 6 rollouts scored · 6 tasks/)
      expect(text).toMatch(/env_error +2 +33\.3% +not scored/)
      expect(text).toMatch(/│ env_error, the first of them +│\n│ +setup threw Error at .*mended\.ts:\d+/)
      expect(text).toContain('millrace show it --outcome env_error\n')
    }
    const [took, alsoTook] = [ran, shown].map(({ stdout }) => /─ complete · \S+ ─/.exec(stdout)?.[0])
    expect(took).toBeDefined()
    expect(alsoTook).toBe(took)
    const failed = await millrace({ cwd }, 'show', 'it', '--outcome', 'env_error')
    expect(failed.stdout).toMatch(/^1-0 +1 +env_error +– +0 +.*the image is missing/m)
    const transcript = await millrace({ cwd }, 'show', 'it', '0-0')
    expect(transcript.stdout).toMatch(
      /^0-0 {2}task 0 · completed · reward 1\.000\ntask {6}index: 0\n\n▌ user\nWhat is 0 \+ 1\?/,
    )
    expect(transcript.stdout).toMatch(/▌ assistant .*\nAnswer: 1\n/)
    const missing = await millrace({ cwd }, 'show', 'it', '77-0')
    expect(missing).toMatchObject({ code: 1, stdout: '' })
    expect(missing.stderr).toMatch(
      /^error: run it has no rollout 77-0; the first that ended is \d-0 \[run_not_found\]\n$/,
    )
    const elsewhere = await millrace({ cwd: join(cwd, 'runs') }, 'show', join(cwd, 'runs', 'it'))
    expect(elsewhere.stdout).toContain(`millrace show ${join(cwd, 'runs', 'it')} --outcome env_error\n`)
  })

  it('export token ids and log-probabilities, and stop when the reader closes the pipe', async () => {
    await using place = await temporaryRuns()
    const cwd = place.root
    await millrace({ cwd }, ...counting, '--env.count=400', '--tokens', '--run', 'it', '--quiet')
    await millrace({ cwd }, 'export', 'it', '--tokens', '-o', 'out.jsonl')
    const [first] = objects(await readFile(join(cwd, 'out.jsonl'), 'utf8')) as { nodes: Record<string, unknown>[] }[]
    const sampled = first?.nodes.filter((node) => node['sampled'] === true) as { tokens: Record<string, number[]> }[]
    expect(sampled).toHaveLength(2)
    for (const { tokens } of sampled) {
      expect(tokens['ids']?.length).toBeGreaterThan(0)
      expect(tokens['logprobs']).toHaveLength(tokens['ids']?.length ?? 0)
      expect(tokens['promptIds']?.length).toBeGreaterThan(0)
    }
    const bin = fileURLToPath(new URL('../../bin/millrace.js', import.meta.url))
    const pipeline = `set -o pipefail; "${process.execPath}" "${bin}" export it --tokens | head -1 | wc -l`
    const piped = spawnSync('bash', ['-c', pipeline], { cwd, encoding: 'utf8' })
    expect({ ...piped, output: undefined }).toMatchObject({
      status: 0,
      stderr: '',
      stdout: expect.stringMatching(/^\s*1\n$/),
    })
  })
})

describe.concurrent('old runs', () => {
  it('are listed newest first, and pruned only with --yes', async () => {
    await using place = await temporaryRuns()
    const cwd = place.root
    for (const name of ['first', 'second', 'third']) {
      await millrace({ cwd }, ...counting, '--env.count=2', '--run', name, '--quiet')
    }
    const listed = objects((await millrace({ cwd }, 'list', '--json')).stdout)
    expect(listed.map(({ run }) => run)).toEqual(['third', 'second', 'first'])
    expect(listed[0]).toMatchObject({ state: 'complete', ended: 2, scored: 2, score: 1 })
    expect((await millrace({ cwd }, 'prune')).stdout).toContain('nothing to delete')
    const planned = await millrace({ cwd }, 'prune', '--keep', '1')
    expect(planned.stdout).toMatch(/^2 runs, .* kB; --yes deletes them$/m)
    expect(await readdir(join(cwd, 'runs'))).toHaveLength(3)
    const pruned = await millrace({ cwd }, 'prune', '--keep', '1', '--yes')
    expect(pruned.stdout).toMatch(/^2 runs deleted, /m)
    expect(await readdir(join(cwd, 'runs'))).toEqual(['third'])
  })
})

describe.concurrent('an environment that init writes', () => {
  it('runs at once in an empty or a new folder, and init never overwrites it', async () => {
    await using place = await temporaryRuns()
    const cwd = place.root
    const here = await millrace({ cwd }, 'init')
    expect(here).toMatchObject({ code: 0, stderr: '' })
    const [, command = ''] = /^next: (?:npx )?millrace (.*)$/m.exec(here.stdout) ?? []
    const ran = await millrace({ cwd }, ...command.split(' '), '--seed', '1', '--json')
    expect(ran.code, ran.stderr).toBe(0)
    expect(objects(ran.stdout).at(-1)).toMatchObject({ end: 'complete', rollouts: 20, scored: 20 })
    const node = ['--import', new URL('../own-sources.ts', import.meta.url).href, '--test', 'environment.test.ts']
    const tested = spawnSync(process.execPath, node, { cwd, encoding: 'utf8', env: { PATH: process.env['PATH'] } })
    expect(tested.status, tested.stdout + tested.stderr).toBe(0)
    expect(tested.stdout).toMatch(/pass 1\b/)
    await writeFile(join(cwd, 'environment.ts'), '// mine')
    const again = await millrace({ cwd }, 'init')
    expect(again).toMatchObject({ code: 1, stdout: '' })
    expect(again.stderr).toContain('environment.ts is there already; choose another folder: npx millrace init <folder>')
    expect(await readFile(join(cwd, 'environment.ts'), 'utf8')).toBe('// mine')
    await millrace({ cwd }, 'init', 'new/one')
    const byFolder = await millrace({ cwd }, 'eval', 'new/one', '-m', 'sim', '--json')
    expect(objects(byFolder.stdout).at(-1)).toMatchObject({ environment: 'one', scored: 20, score: { mean: 1 } })
  })
})

it('a simulator process serves both APIs, streamed or not, to clients with its key', async () => {
  await using place = await temporaryRuns()
  const cwd = place.root
  await using simulator = startMillrace({ cwd }, 'sim', '--port', '0', '--api-key', 'sesame', '--models', 'mine')
  await simulator.shows('stdout', 'Ctrl-C ends it')
  const [, command = ''] = /OPENAI_API_KEY=<key> (?:npx )?millrace (.*)/.exec(simulator.stdout()) ?? []
  const words = [...command.split(' '), '--limit', '3', '--json']
  const variants = [[], ['--stream'], ['--api', 'responses'], ['--api', 'responses', '--stream']]
  const withKey = { cwd, env: { OPENAI_API_KEY: 'sesame' } }
  for (const ended of await Promise.all(variants.map((flags) => millrace(withKey, ...words, ...flags)))) {
    expect(ended.code, ended.stderr).toBe(0)
    expect(objects(ended.stdout).at(-1)).toMatchObject({ model: 'mine', scored: 3, score: { mean: 1 }, cost: null })
  }
  simulator.process.kill('SIGINT')
  expect(await simulator.ended).toMatchObject({ code: 0, stderr: '' })
})

it('a run stops at --max-cost and prints the command that continues it', async () => {
  await using place = await temporaryRuns()
  const cwd = place.root
  const words = [...counting, '--env.count=500', '-c', '2', '--sim.ttftMs=5', '--run', 'it', '--json']
  const priced = [...words, '--price.input', '100', '--price.output', '1000', '--max-cost', '0.5']
  const ended = await millrace({ cwd }, ...priced)
  expect(ended.code, ended.stderr).toBe(3)
  const summary = objects(ended.stdout).at(-1)
  expect(summary).toMatchObject({ end: 'max_cost', costUnknown: 0 })
  expect(summary?.['cost']).toBeGreaterThan(0.5)
  expect(summary?.['rollouts']).toBeLessThan(100)
  expect(ended.stderr).toMatch(
    /^The run has spent its --max-cost; \d+ ended rollouts are kept\. With more to spend, continue with:\n/,
  )
  expect(ended.stderr).toContain("--price.output 1000 --max-cost '<usd>' --run it\n")
  expect(ended.stderr).not.toContain('--max-cost 0.5')
})

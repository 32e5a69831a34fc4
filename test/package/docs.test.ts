import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { readFile, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { outcomes, Simulator, type Summary } from 'millrace'
import { temporaryRuns } from 'millrace/testing'
import { describe, expect, test } from 'vitest'
import { exitCodes } from '../../src/cli/terminal/exit-codes.ts'
import { readModelsFile } from '../../src/cli/commands/eval/options-from-flags.ts'
import { errorCodes } from '../../src/errors/index.ts'
import { evaluateOptionFields } from '../../src/eval/index.ts'
import { modelConfigSchema, retryTable } from '../../src/inference/index.ts'
import { defaultLimits, limitsSchema } from '../../src/schema/index.ts'
import { runFiles } from '../../src/store/index.ts'
import { resolveSupervision } from '../../src/worker/index.ts'
import { allPages, markedBlocks, page, root, tableRows } from '../support/pages.ts'

const run = promisify(execFile)
const pages = await allPages()
const readme = await page('README.md')
const errorsPage = await page('docs/errors.md')
const agentsPage = await page('docs/agents.md')
/** What the page of agents says to try, with the simulator: `eval arithmetic -m sim --agent plan`. */
const agentCommands = [
  ...new Set(
    Array.from(agentsPage.text.matchAll(/\bmillrace (eval [\w-]+ -m sim[^`\n]*)/g), ([, words = '']) => words),
  ),
]
const bin = join(root, 'bin', 'millrace.js')

/** `30 s`, `10 min` and `6 h` in milliseconds; `never` is no limit. */
function milliseconds(duration = ''): number {
  if (duration === 'never') return Number.POSITIVE_INFINITY
  const [count, unit = ''] = duration.split(' ')
  return Number(count) * ({ s: 1_000, min: 60_000, h: 3_600_000 }[unit] ?? Number.NaN)
}

const yesOrNo = (isYes: boolean): string => (isYes ? 'yes' : 'no')
const firstCells = (rows: readonly string[][]): string[] => rows.flatMap(([first = '']) => first.split(', '))

const agentFlags = [
  '--allowedTools',
  '--dangerously-skip-permissions',
  '--dangerously-bypass-approvals-and-sandbox',
  '--skip-git-repo-check',
  '--exit-immediately',
] as const

describe('the documented tables match the code', () => {
  test('error codes', () => {
    const rows = tableRows(errorsPage, 'Error codes').map(([code, , , retryable]) => [code, retryable])
    const expected = Object.entries(errorCodes).map(([code, { retryable }]) => [code, yesOrNo(retryable)])
    expect(rows).toEqual(expected)
  })

  test('outcomes', () => {
    const rows = tableRows(errorsPage, 'Outcomes').map(([outcome, , scored, rule]) => [outcome, scored, rule])
    const expected = Object.entries(outcomes).map(([outcome, { scored, truncated, rule }]) => [
      outcome,
      truncated ? 'yes, truncated' : yesOrNo(scored),
      rule,
    ])
    expect(rows).toEqual(expected)
  })

  test('retries', () => {
    const expected = Object.entries(retryTable).map(([code, { cause, retried, counts, backoff }]) =>
      retried
        ? [code, cause, 'yes', counts.replace('-', ' '), `${backoff.firstMs / 1000} to ${backoff.maxMs / 1000} s`]
        : [code, cause, 'no', '', ''],
    )
    expect(tableRows(errorsPage, 'Retries of a model call')).toEqual(expected)
  })

  test('exit codes', () => {
    const rows = tableRows(errorsPage, 'Exit codes of the command line').map(([code, name]) => [name, Number(code)])
    expect(rows).toEqual(Object.entries(exitCodes))
  })

  test('fields of a model, options of the simulator, limits, files of a run', async () => {
    const models = tableRows(await page('docs/models.md'), 'The models file')
    expect(firstCells(models)).toEqual(Object.keys(modelConfigSchema.shape))
    await using simulator = new Simulator()
    const { faults, overload, ...plain } = simulator.settings
    const options = [
      ...Object.keys(plain),
      ...Object.keys(faults).map((name) => `faults.${name}`),
      ...Object.keys(overload).map((name) => `overload.${name}`),
      'weightVersion',
    ]
    const documented = firstCells(tableRows(await page('docs/simulator.md'), 'Options'))
    expect(documented.toSorted()).toEqual(options.toSorted())
    const limits = tableRows(await page('docs/environments.md'), 'Limits and budget')
    expect(firstCells(limits)).toEqual(Object.keys(limitsSchema.shape))
    expect(limits.find(([name]) => name === 'maxTurns')?.[1]).toBe(String(defaultLimits.maxTurns))
    for (const name of ['timeoutMs', 'wallTimeoutMs', 'tailMs'] as const) {
      expect(milliseconds(limits.find(([limit]) => limit === name)?.[1])).toBe(defaultLimits[name])
    }
    const files = firstCells(tableRows(await page('docs/internals.md'), 'The run folder'))
    expect(files.map((name) => name.replace(/\/$/, '')).toSorted()).toEqual(Object.values(runFiles).toSorted())
  })

  test('rules of worker supervision', async () => {
    const rows = tableRows(await page('docs/workers.md'), 'While it runs').map(([, rule = '', given]) => [rule, given])
    const { heap, ...rules } = resolveSupervision()
    expect(heap, "Node's").toEqual({})
    const expected = {
      ...rules,
      'heap.maxOldGenerationMb': "Node's",
      'heap.maxYoungGenerationMb': "Node's",
    }
    const documented = rows.map(([rule, given]) => [rule, given === "Node's" ? given : milliseconds(given)])
    expect(Object.fromEntries(documented)).toEqual(expected)
  })

  test('options of evaluate()', async () => {
    const rows = tableRows(await page('docs/library.md'), 'Options')
    expect(firstCells(rows)).toEqual(Object.keys(evaluateOptionFields))
  })
})

describe('references in the pages exist', () => {
  test.each(pages.map(({ path, text }) => [path, text]))('links and file names in %s', async (path, text) => {
    for (const [, target = ''] of text.matchAll(/\]\(([^)\s]+)\)/g)) {
      if (/^\w+:/.test(target)) continue
      const [file = '', anchor] = target.split('#')
      const linked = file === '' ? path : join(dirname(path), file)
      expect(existsSync(join(root, linked)), `${path} links to ${target}`).toBe(true)
      if (anchor !== undefined)
        expect(anchorsOf((await page(linked)).text), `${path} links to ${target}`).toContain(anchor)
    }
    for (const [, file = ''] of text.matchAll(/`((?:src|test|bench|bin|examples|docs)\/[\w./-]+)`/g)) {
      expect(existsSync(join(root, file)), `${path} names ${file}`).toBe(true)
    }
  })

  test('flags', async () => {
    const commands = [
      'eval',
      'serve',
      'gateway',
      'tools',
      'doctor',
      'show',
      'replay',
      'rescore',
      'fork',
      'list',
      'export',
      'prune',
      'sim',
      'init',
    ]
    const helps = await Promise.all(commands.map((name) => run(process.execPath, [bin, name, '--help'])))
    const flags = new Map(commands.map((name, index) => [name, flagsIn(helps[index]?.stdout ?? '')]))
    // Those of npm, of Node, of our own benchmarks and of agents that are not ours.
    const others = new Set(['--quick', '--save-dev', '--import', ...agentFlags])
    for (const { path, text } of pages) {
      for (const line of text.split('\n')) {
        for (const [, name = '', words = ''] of line.matchAll(/\bmillrace (\w+)([^`#|]*)/g)) {
          const known = flags.get(name)
          if (!known) continue
          for (const flag of flagsOf(words)) expect(known, `${path}: millrace ${name}${words}`).toContain(flag)
        }
        for (const flag of flagsOf(line.replaceAll(/\bmillrace \w+[^`#|]*/g, '')).filter((each) =>
          each.startsWith('--'),
        )) {
          const isKnown = others.has(flag) || commands.some((name) => flags.get(name)?.has(flag))
          expect(isKnown, `${path} mentions ${flag}`).toBe(true)
        }
      }
    }
  })
})

/** As GitHub makes them from headings. */
function anchorsOf(text: string): string[] {
  return Array.from(text.matchAll(/^#+ (.+)$/gm), ([, heading = '']) =>
    heading
      .toLowerCase()
      .replaceAll(/[^\w\s-]/g, '')
      .replaceAll(' ', '-'),
  )
}

/** `-m`, `--model`, and `--sim.` for a whole family. */
function flagsIn(help: string): Set<string> {
  const flags = Array.from(help.matchAll(/^ {2,6}(?:(-\w), )?(--[A-Za-z][\w.-]*)/gm), ([, short, long = '']) => [
    ...(short === undefined ? [] : [short]),
    long,
  ])
  return new Set(flags.flat())
}

function flagsOf(words: string): string[] {
  const found = Array.from(words.matchAll(/(?<![\w-])(--[A-Za-z][\w.-]*|-[a-z](?= ))/g), ([, flag = '']) => flag)
  return found.map((flag) => flag.replace(/^(--(?:env|sim|sampling|agent|nemo-gym)\.).*/, '$1'))
}

describe('the README', () => {
  test('is short and begins with the two main commands', () => {
    const lines = readme.text.split('\n')
    expect(lines.length).toBeLessThanOrEqual(120)
    const start = lines.slice(0, 12).join('\n')
    expect(start).toContain('npm ci && npm run demo')
    expect(start).toContain('npm ci && npm test')
  })

  test('shows an environment of twelve lines and its actual output', async () => {
    const [environment] = markedBlocks(readme.text, 'environment')
    const [command] = markedBlocks(readme.text, 'command')
    const [output] = markedBlocks(readme.text, 'output')
    expect(environment?.code.trimEnd().split('\n')).toHaveLength(12)
    const words = command?.code.trim().split(' ').slice(2) ?? []
    expect(command?.code).toMatch(/^npx millrace eval /)
    const { stdout } = await inFolder({ [environment?.argument ?? '']: environment?.code ?? '' }, words)
    // How long it took differs from time to time; what came out does not.
    const timeless = (text: string): string[] =>
      text.split('\n').filter((line) => /^[│├]/.test(line) && !/ms|rollouts\/s/.test(line))
    expect(timeless(stdout)).toEqual(timeless(output?.code ?? ''))
    expect(timeless(stdout).length).toBeGreaterThan(12)
  })
})

describe('examples in the documentation', () => {
  test('environments run and are solved', async () => {
    const { text } = await page('docs/environments.md')
    const environments = markedBlocks(text, 'environment')
    const data = markedBlocks(text, 'data').map(({ argument, code }) => [argument, code])
    expect(environments.map(({ argument }) => argument)).toEqual(['from-csv.ts', 'three-questions.ts', 'insist.ts'])
    for (const { argument, code } of environments) {
      const words = ['eval', `./${argument}`, '-m', 'sim', '--json', '--quiet']
      expect(solved(await inFolder({ ...Object.fromEntries(data), [argument]: code }, words)), argument).toBe(true)
    }
  })

  test('every agent of docs/agents.md has an example that is solved', async () => {
    const { text } = agentsPage
    const environments = markedBlocks(text, 'environment')
    const examples = new Set([
      ...environments.map(({ argument }) => argument.replace('.ts', '')),
      ...agentCommands.flatMap((command) => /--agent (\w+)/.exec(command)?.[1] ?? []),
    ])
    expect(tableRows(agentsPage, 'The agents').filter(([name = '']) => !examples.has(name))).toEqual([])
    const program = await readFile(join(root, 'examples/external/agent.py'), 'utf8')
    for (const { argument, code } of environments) {
      const words = ['eval', `./${argument}`, '-m', 'sim', '--limit', '4', '--json', '--quiet']
      expect(solved(await inFolder({ 'agent.py': program, [argument]: code }, words)), argument).toBe(true)
    }
  })

  test.each(agentCommands)('%s', async (command) => {
    await using folder = await temporaryRuns()
    const limited = command.includes('--limit') ? command : `${command} --limit 4`
    const line = `"${process.execPath}" "${bin}" ${limited} --json --quiet`
    const env = { PATH: process.env['PATH'], MILLRACE_RUNS: folder.root }
    expect(solved(await run('/bin/sh', ['-c', line], { cwd: root, env }))).toBe(true)
  })

  test('copied files are identical to the original', async () => {
    const copies = pages.flatMap(({ text }) => markedBlocks(text, 'file'))
    expect(copies.map(({ argument }) => argument).toSorted()).toEqual([
      'examples/arithmetic/environment.test.ts',
      'examples/python/gateway_session.py',
      'examples/python/train_loop.py',
    ])
    for (const { argument, code } of copies) expect(code).toBe(await readFile(join(root, argument), 'utf8'))
  })

  test('the models file is valid', async () => {
    const [models] = markedBlocks((await page('docs/models.md')).text, 'models')
    await using folder = await temporaryRuns()
    await writeFile(join(folder.root, 'models.json'), models?.code ?? '')
    expect(Object.keys(await readModelsFile('models.json', folder.root))).toEqual(['policy', 'judge'])
  })
})

/** Whether a run came to its end, and every rollout of it to a reward of 1. */
function solved({ stdout }: { readonly stdout: string }): boolean {
  const summary = JSON.parse(stdout.trimEnd().split('\n').at(-1) ?? '') as Summary
  const { end, rollouts, outcomes: ended, score } = summary
  return end === 'complete' && ended.completed === rollouts && score?.mean === 1
}

/** Runs the real command in a folder that holds these files. */
async function inFolder(
  files: Readonly<Record<string, string>>,
  words: readonly string[],
): Promise<{ stdout: string; stderr: string }> {
  await using folder = await temporaryRuns()
  for (const [name, content] of Object.entries(files)) await writeFile(join(folder.root, name), content)
  return await run(process.execPath, [bin, ...words], { cwd: folder.root, env: { PATH: process.env['PATH'] } })
}

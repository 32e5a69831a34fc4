import { execFile, type ExecFileException } from 'node:child_process'
import { cp, mkdir, readdir, readFile, symlink, writeFile } from 'node:fs/promises'
import { delimiter, dirname, join } from 'node:path'
import type { Summary } from 'millrace'
import { temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import { CounterServer } from '../support/nemo-gym/counter-server.ts'
import { markedBlocks } from '../support/pages.ts'

const root = join(import.meta.dirname, '../..')
/** What a release is made from. Built in a copy, so that nothing appears in the repository while its tests run. */
const sources = ['src', 'bin', 'clients', 'docs', 'examples', 'package.json', 'tsconfig.json', 'tsconfig.build.json']
const papers = ['README.md', 'CHANGELOG.md', 'LICENSE']

test('the packed tarball works in a fresh folder', async () => {
  await using temporary = await temporaryRuns()
  const [staging, project] = [join(temporary.root, 'staging'), join(temporary.root, 'project')]
  await Promise.all([mkdir(staging), mkdir(project)])
  for (const name of [...sources, ...papers]) await cp(join(root, name), join(staging, name), { recursive: true })
  await symlink(join(root, 'node_modules'), join(staging, 'node_modules'))

  const packed = await run('npm', ['pack', '--json', '--pack-destination', project], staging)
  const tarball = (await readdir(project)).find((name) => name.endsWith('.tgz')) ?? ''
  const [{ files }] = JSON.parse(packed.stdout.slice(packed.stdout.indexOf('['))) as [{ files: { path: string }[] }]
  const paths = files.map(({ path }) => path)
  const python = ['pyproject.toml', 'README.md', 'src/millrace/__init__.py', 'src/millrace/py.typed']
  const clients = python.map((name) => `clients/python/${name}`)
  const dist = ['dist/index.js', 'dist/index.d.ts', 'dist/testing/index.js']
  for (const path of [...papers, 'bin/millrace.js', ...dist, ...clients]) expect(paths).toContain(path)
  expect(
    paths.filter((path) => /^(src|test|bench)\/|_testing\/|^dist\/.*\.test\.|\/tests\/|\.pyc$/.test(path)),
  ).toEqual([])

  await writeFile(join(project, 'package.json'), JSON.stringify({ name: 'project', private: true, type: 'module' }))
  // Patient for seconds, not for minutes, where there is no registry.
  const patience = ['--prefer-offline', '--fetch-retries=1', '--fetch-retry-mintimeout=500', '--fetch-timeout=20000']
  await run('npm', ['install', '--no-audit', '--no-fund', ...patience, `./${tarball}`], project).catch(
    (error: unknown) => {
      const why = error instanceof Error ? error.message : String(error)
      throw new Error(`this test needs a registry for the dependencies of the tarball: ${why}`, { cause: error })
    },
  )

  // An example, from node_modules, where Node itself would not run TypeScript.
  const words = ['eval', 'arithmetic', '-m', 'sim', '--limit', '5', '--json', '--quiet']
  const example = await run('npx', ['--no-install', 'millrace', ...words], project)
  expect(summaryIn(example.stdout)).toMatchObject({ end: 'complete', rollouts: 5, score: { mean: 1 } })
  const bin = join('node_modules', '.bin', 'millrace')
  expect((await run(bin, words, project)).stderr).toBe('')

  // The environment of the README, on the main thread, in threads and in processes.
  const [environment] = markedBlocks(await readFile(join(root, 'README.md'), 'utf8'), 'environment')
  await writeFile(join(project, 'environment.ts'), environment?.code ?? '')
  await writeFile(
    join(project, 'isolated.ts'),
    `import environment from './environment.ts'\nexport default { ...environment, isolation: 'process' }\n`,
  )
  for (const given of [
    ['./environment.ts'],
    ['./environment.ts', '--workers', '2'],
    ['./isolated.ts', '--workers', '2'],
  ]) {
    const flags = ['-m', 'sim', '--json', '--quiet', '--new']
    const { stdout, stderr } = await run(bin, ['eval', ...given, ...flags], project)
    expect(summaryIn(stdout)).toMatchObject({ end: 'complete', rollouts: 50, score: { mean: 1 } })
    expect(stderr).toBe('')
  }

  // Rows of NeMo Gym, whose environment is a module of the package.
  await using server = await CounterServer.start()
  await writeFile(join(project, 'gym.yaml'), `res: {resources_servers: {counter: {port: ${server.port}}}}`)
  await writeFile(join(project, 'prompt.yaml'), 'user: "{question}"')
  const row = { question: 'Go.', initial_count: 3, expected_count: 3 }
  await writeFile(join(project, 'rows.jsonl'), JSON.stringify(row))
  for (const workers of [[], ['--workers', '1']]) {
    const gym = ['eval', '--nemo-gym', 'gym.yaml', '-i', 'rows.jsonl', '-m', 'sim', '--json', '--quiet', '--new']
    const prompt = '--nemo-gym.prompt_config=prompt.yaml'
    const { stdout } = await run(bin, [...gym, prompt, ...workers], project)
    expect(summaryIn(stdout)).toMatchObject({ end: 'complete', rollouts: 1, score: { mean: 1 } })
  }

  // As a library, and as something to test an environment with.
  await cp(join(root, 'examples', 'library', 'main.ts'), join(project, 'main.ts'))
  await cp(join(root, 'examples', 'arithmetic'), join(project, 'arithmetic'), { recursive: true })
  expect((await run('node', ['main.ts'], project)).stdout).toMatch(/over 100 rollouts$/m)
  const tested = await run('node', ['--test', '--test-reporter=tap', 'arithmetic/environment.test.ts'], project)
  expect(tested.stdout).toMatch(/^# pass 2$/m)

  // And the types that come with it fit all of that.
  const compilerOptions = {
    module: 'nodenext',
    target: 'esnext',
    strict: true,
    noEmit: true,
    allowImportingTsExtensions: true,
    types: ['node'],
    typeRoots: [join(root, 'node_modules', '@types')],
  }
  const include = ['environment.ts', 'main.ts', 'arithmetic']
  await writeFile(join(project, 'tsconfig.json'), JSON.stringify({ compilerOptions, include }))
  expect((await run(join(root, 'node_modules', '.bin', 'tsc'), ['-p', '.'], project)).stdout).toBe('')
})

/** Rejects with what the program said. Node is the one these tests run on, whatever the system has. */
function run(file: string, args: readonly string[], cwd: string): Promise<{ stdout: string; stderr: string }> {
  const path = [dirname(process.execPath), process.env['PATH']].join(delimiter)
  // What `npm test` tells its scripts about this package must not be taken for the other one's.
  const inherited = Object.entries(process.env).filter(([name]) => !/^npm_(package|lifecycle|config_local)/.test(name))
  const env = { ...Object.fromEntries(inherited), PATH: path, NO_COLOR: '1', MILLRACE_RUNS: join(cwd, 'runs') }
  return new Promise((resolve, reject) => {
    const options = { cwd, env, encoding: 'utf8', maxBuffer: 64 * 1024 * 1024 } as const
    execFile(file, args, options, (error: ExecFileException | null, stdout, stderr) => {
      if (!error) resolve({ stdout, stderr })
      else reject(new Error(`${file} ${args.join(' ')} failed: ${stderr || stdout || error.message}`, { cause: error }))
    })
  })
}

function summaryIn(stdout: string): Summary {
  const last = stdout.trimEnd().split('\n').at(-1) ?? ''
  return JSON.parse(last) as Summary
}

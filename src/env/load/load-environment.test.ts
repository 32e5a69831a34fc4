import { execFile, spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, mkdtempDisposable, realpath, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { importModule } from './load-environment.ts'

const indexUrl = new URL('../index.ts', import.meta.url).href
const ownIndexUrl = new URL('../../index.ts', import.meta.url).href
const ownTestingUrl = new URL('../../testing/index.ts', import.meta.url).href

/** A module with as little as an environment needs, so that nothing has to be installed beside it. */
function moduleText(name: string, more = ''): string {
  return `
    import { defineEnvironment, z } from 'millrace'
    interface Nothing {}
    export default defineEnvironment({
      name: '${name}',
      options: z.object({ size: z.number().default(1), label: z.string().default('') }),
      task: z.object({}),
      tasks: (): Nothing[] => [],
      prompt: () => '',
      reward: () => 1,
    })
    ${more}`
}

interface Loaded {
  name?: string
  specifier?: string
  options?: unknown
  error?: { code: string; message: string }
}

interface LoadRequest {
  readonly cwd: string
  readonly specifiers: readonly string[]
  readonly rawOptions: object
}

/** Loads in a process of Node's own: the test runner would compile the modules in its way, not in Node's. */
class LoadingProcess implements AsyncDisposable {
  readonly #child: ChildProcess

  constructor() {
    const script = `
      import { loadEnvironment } from ${JSON.stringify(indexUrl)}
      process.on('message', async ({ cwd, specifiers, rawOptions }) => {
        process.chdir(cwd)
        const results = []
        for (const specifier of specifiers) {
          try {
            const { name, specifier: url, options } = await loadEnvironment(specifier, rawOptions)
            results.push({ name, specifier: url, options })
          } catch (error) {
            results.push({ error: { code: error.code, message: error.rawMessage } })
          }
        }
        process.send(JSON.stringify(results))
      })`
    const words = ['--no-warnings', '--input-type=module', '--eval', script]
    this.#child = spawn(process.execPath, words, { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] })
  }

  /** One request at a time. */
  load(request: LoadRequest): Promise<string> {
    return new Promise((resolve, reject) => {
      this.#child.removeAllListeners()
      this.#child.once('message', (results) => resolve(String(results)))
      this.#child.once('exit', (code) => reject(new Error(`the process that loads ended with code ${code}`)))
      this.#child.send(request)
    })
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#child.removeAllListeners()
    this.#child.kill()
    await once(this.#child, 'exit')
  }
}

/** One for nearly all tests: to start one takes much longer than to load a module. */
let shared: LoadingProcess
beforeAll(() => void (shared = new LoadingProcess()))
afterAll(() => shared[Symbol.asyncDispose]())

interface LoadOptions {
  readonly rawOptions?: object
  readonly on?: LoadingProcess
}

async function load(
  files: Record<string, string>,
  specifiers: readonly string[],
  { rawOptions = {}, on = shared }: LoadOptions = {},
) {
  await using folder = await mkdtempDisposable(join(await realpath(tmpdir()), 'millrace-load-'))
  await Promise.all(
    Object.entries(files).map(async ([name, text]) => {
      await mkdir(dirname(join(folder.path, name)), { recursive: true })
      await writeFile(join(folder.path, name), text)
    }),
  )
  const text = await on.load({ cwd: folder.path, specifiers, rawOptions })
  const results: Loaded[] = JSON.parse(text.replaceAll(folder.path, '/project'))
  return results
}

async function messagesOf(files: Record<string, string>, specifiers: readonly string[] = Object.keys(files)) {
  return (await load(files, specifiers)).map(({ error }) => `${error?.code}: ${error?.message}`)
}

describe('loadEnvironment', () => {
  test('finds a path, a named export, a folder, a package and an example', async () => {
    const results = await load(
      {
        'mine.ts': moduleText('mine'),
        'named.ts': moduleText('named').replace('export default', 'export const environment ='),
        'folder/environment.ts': moduleText('in-folder'),
        'node_modules/plain/package.json': '{"type":"module","exports":{"import":"./main.js"}}',
        'node_modules/plain/main.js': moduleText('packaged').replace(/interface.*|: Nothing\[\]/g, ''),
        'arithmetik/readme.md': 'not an environment',
      },
      ['mine.ts', './mine.ts', 'named.ts', 'folder', 'plain', 'arithmetic'],
    )
    expect(results.map(({ name, specifier, error }) => error ?? `${name} ${specifier}`)).toEqual([
      'mine file:///project/mine.ts',
      'mine file:///project/mine.ts',
      'named file:///project/named.ts',
      'in-folder file:///project/folder/environment.ts',
      'packaged file:///project/node_modules/plain/main.js',
      `arithmetic ${new URL('../../../examples/arithmetic/environment.ts', import.meta.url).href}`,
    ])
  })

  test('loads a module that TypeScript compiled to CommonJS', async () => {
    const compiled = (exported: string): string => `
      Object.defineProperty(exports, '__esModule', { value: true })
      const { defineEnvironment, z } = require('millrace')
      exports.${exported} = defineEnvironment({
        name: '${exported}', task: z.object({}), tasks: () => [], prompt: () => '', reward: () => 1,
      })`
    const files = { 'one.cjs': compiled('default'), 'two.cjs': compiled('environment'), 'none.cjs': compiled('other') }
    // Where nobody has imported Millrace yet, so that `require` is the first to load it.
    await using fresh = new LoadingProcess()
    const results = await load(files, Object.keys(files), { on: fresh })
    expect(results).toMatchObject([{ name: 'default' }, { name: 'environment' }, { error: { code: 'env_invalid' } }])
    expect(results[2]?.error?.message).toMatch(/none\.cjs exports no environment/)
  })

  test('loads ES modules in a package of type commonjs, as npm init creates it', async () => {
    const files = {
      'package.json': '{ "type": "commonjs" }',
      'mine.ts': `export { default } from './other.ts'`,
      'other.ts': moduleText('typed'),
      'plain.js': `import { defineEnvironment, z } from 'millrace'
        export default defineEnvironment({ name: 'plain', task: z.object({}), tasks: () => [], prompt: () => '', reward: () => 1 })`,
      'common.js': `module.exports = require('./plain.cjs') // import it`,
      'plain.cjs': `const { defineEnvironment, z } = require('millrace')
        module.exports = defineEnvironment({ name: 'common', task: z.object({}), tasks: () => [], prompt: () => '', reward: () => 1 })`,
      'quoted.js': `const code = \`
import x from 'y'
export default x\`
        module.exports = { ...require('./plain.cjs'), name: String(code.includes('import x')) }`,
      'quoted-types.ts': `const code: string = \`
import x from 'y'\`
        module.exports = { ...require('./plain.cjs'), name: String(code.length) }`,
    }
    const results = await load(files, ['mine.ts', 'plain.js', 'common.js', 'quoted.js', 'quoted-types.ts'])
    const names = ['typed', 'plain', 'common', 'true', '18']
    expect(results).toMatchObject(names.map((name) => ({ name })))
  })

  test('loads the URL that it returned', async () => {
    await using folder = await mkdtempDisposable(join(tmpdir(), 'millrace-load-'))
    const url = pathToFileURL(join(folder.path, 'mine.ts')).href
    await writeFile(fileURLToPath(url), moduleText('mine'))
    expect((await load({}, [url]))[0]).toMatchObject({ name: 'mine', specifier: url })
  })

  test('reads options from text', async () => {
    const [result] = await load({ 'mine.ts': moduleText('mine') }, ['mine.ts'], {
      rawOptions: { size: '3', label: '7' },
    })
    expect(result?.options).toEqual({ size: 3, label: '7' })
  })

  test('names what is missing, with the nearest name', async () => {
    const files = { 'mine.ts': moduleText('mine'), 'empty/readme.md': '', 'riddles/environment.ts': '', 'sums.csv': '' }
    const specifiers = [
      './mine2.ts',
      'elsewhere.ts',
      './empty',
      'arithmetik',
      'node:fs',
      'fs',
      'ridles',
      './sums.ts',
      'empty',
    ]
    const messages = await messagesOf(files, specifiers)
    expect(messages[0]).toBe('file_not_found: there is no file /project/mine2.ts; did you mean mine.ts?')
    expect(messages[1]).toBe(
      'file_not_found: there is no file /project/elsewhere.ts; the folder /project is there, so check the name',
    )
    expect(messages[2]).toBe(
      'file_not_found: the folder /project/empty holds no environment.ts; name the module itself, or write one with `millrace init`',
    )
    expect(messages[8]).toBe(messages[2])
    expect(messages[3]).toMatch(
      /^env_load_failed: there is no environment "arithmetik": .* Did you mean arithmetic\? Examples: .*arithmetic/,
    )
    expect(messages[4]).toMatch(/^env_load_failed: there is no environment "node:fs"/)
    expect(messages[5]).toMatch(/^env_load_failed: there is no environment "fs"/)
    expect(messages[6]).toMatch(
      /^env_load_failed: there is no environment "ridles": .* Did you mean riddles\? Examples/,
    )
    expect(messages[7]).toMatch(/^file_not_found: there is no file \/project\/sums\.ts; the folder/)
  })

  test('says where a module failed, and what to do', async () => {
    const messages = await messagesOf(
      {
        'throws.ts': "\nfunction inner() {\n  throw new TypeError('boom')\n}\ninner()\n",
        'deep.ts': "import './helper.ts'",
        'helper.ts': "\n\nthrow new Error('deeper')",
        'enumerated.ts': 'export const x = 1\nenum Color { Red }\n',
        'typo.ts': 'const a: = 3',
        'typo.mjs': 'const a = = 3',
        'short.ts': "import './helper'",
        'compiled.ts': "import './helper.js'",
        'lacking.ts': "import 'not-a-package'",
        'misspelt.ts': "import 'milrace/testing'",
        'companion.ts': "import 'millrace-extras'",
        'text.txt': '',
        'node_modules/typed/package.json': '{"type":"module","exports":"./environment.ts"}',
        'node_modules/typed/environment.ts': moduleText('typed'),
      },
      [
        'throws.ts',
        'deep.ts',
        'enumerated.ts',
        'typo.ts',
        'typo.mjs',
        'short.ts',
        'compiled.ts',
        'lacking.ts',
        'misspelt.ts',
        'companion.ts',
        './text.txt',
        'typed',
      ],
    )
    const expected = [
      /^\/project\/throws.ts could not be loaded: boom \(at \/project\/throws.ts:3\)\. Correct that and run it again; --debug \(`cause` of the error\) shows the whole stack$/,
      /^\/project\/deep.ts could not be loaded: deeper \(at \/project\/helper.ts:3\)\. Correct that/,
      /enum is not supported.* \(at \/project\/enumerated.ts:2\)\. Node runs TypeScript by leaving out the types/,
      /^\/project\/typo.ts could not be loaded: .* \(at \/project\/typo.ts:1\)\. Correct that/,
      /^\/project\/typo.mjs could not be loaded: .*`node --check \/project\/typo.mjs` shows the place$/,
      /Cannot find module '\/project\/helper'.* Imports need the file's extension: write \.ts at the end$/,
      /Cannot find module '\/project\/helper\.js'.* Imports must name the existing file: write helper\.ts$/,
      /Cannot find package 'not-a-package'.* Install it where the environment is: npm install not-a-package$/,
      /Cannot find package 'milrace'[^.]*\.ts\. Did you mean 'millrace'\?$/,
      /Cannot find package 'millrace-extras'.* npm install millrace-extras$/,
      /Unknown file extension ".txt".* An environment is a module in a \.ts, \.js or \.mjs file$/,
      /Node does not run TypeScript from node_modules: use a package with JavaScript/,
    ]
    for (const [index, pattern] of expected.entries()) {
      const [code, ...rest] = (messages[index] ?? '').split(': ')
      expect(code).toBe('env_load_failed')
      expect(rest.join(': ')).toMatch(pattern)
      expect(rest.join(': ')).not.toMatch(/\n|node:internal/)
    }
  })

  test('an error of ours during loading keeps its code and gets its place', async () => {
    const files = {
      'judged.ts': "import { judge } from 'millrace'\nexport const verdict = judge({ rubrik: 'fair' })",
      'read.ts': "import { csv } from 'millrace'\nexport const rows = csv('tasks.csv', { seperator: ';' })",
    }
    const [judged, read] = await messagesOf(files)
    expect(judged).toMatch(
      /^env_invalid: \/project\/judged\.ts could not be loaded: .*`rubrik`.*\(at \/project\/judged\.ts:2\)\. Correct that/,
    )
    expect(read).toMatch(
      /^env_invalid: \/project\/read\.ts could not be loaded: .*`seperator`.*\(at \/project\/read\.ts:2\)/,
    )
  })

  test('names what a module lacks', async () => {
    const messages = await messagesOf({
      'nothing.ts': 'export const a = 1, b = 2',
      'half.ts': "export default { name: 'half', tasks: [], rewards: () => 1 }",
    })
    expect(messages[0]).toBe(
      'env_invalid: /project/nothing.ts exports no environment: write `export default defineEnvironment({ … })`. It exports a, b',
    )
    expect(messages[1]).toMatch(/^env_invalid: \/project\/half.ts is not an environment: `task` must be a schema/)
    expect(messages[1]).toContain('`tasks` must be a function that returns the tasks, not an array')
    expect(messages[1]).toContain('`rewards` is not known; did you mean `reward`?')
  })
})

describe('registerResolver', () => {
  test('resolves to this copy from anywhere, also on a thread, and may be repeated', async () => {
    await using folder = await mkdtempDisposable(join(await realpath(tmpdir()), 'millrace-resolve-'))
    const probe = pathToFileURL(join(folder.path, 'probe.mjs')).href
    await writeFile(
      fileURLToPath(probe),
      "export const resolved = ['millrace', 'millrace/testing'].map((name) => import.meta.resolve(name))",
    )
    const onThread = `
      import { registerResolver } from ${JSON.stringify(indexUrl)}
      registerResolver()
      registerResolver()
      const { resolved } = await import(${JSON.stringify(probe)})
      console.log(JSON.stringify(resolved))`
    const script = `
      import { Worker } from 'node:worker_threads'
      ${onThread}
      new Worker(new URL('data:text/javascript,' + encodeURIComponent(${JSON.stringify(onThread)})))`
    const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '--eval', script])
    const expected = JSON.stringify([ownIndexUrl, ownTestingUrl])
    expect(stdout.trim().split('\n')).toEqual([expected, expected])
  })
})

test('parallel loads add one process listener and remove it afterwards', async () => {
  const listeners = (): number => process.listenerCount('beforeExit')
  const before = listeners()
  const found = Array.from({ length: 12 }, () => importModule(new URL('../define/context.ts', import.meta.url)))
  const missing = importModule(new URL('no-such-module.ts', import.meta.url))
  expect(listeners()).toBe(before + 1)
  await expect(missing).rejects.toThrow('no-such-module')
  expect(await Promise.all(found)).toHaveLength(12)
  expect(listeners()).toBe(before)
})

import { existsSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { basename, join, relative, resolve } from 'node:path'
import { MillraceError } from '../../../errors/index.ts'
import { makeFolders } from '../../../kit/index.ts'
import { defineCommand } from '../../command-line/command.ts'
import { exitCodes } from '../../terminal/exit-codes.ts'
import { shellQuote } from '../../terminal/format.ts'

export const command = defineCommand({
  name: 'init',
  description:
    'Writes a small environment that runs at once: arithmetic with a calculator tool, in about thirty lines to start ' +
    'from, with a test. Never overwrites anything.',
  arguments: [
    { name: 'folder', required: false, help: 'the folder to write to, made if needed; this one if not given' },
  ],
  flags: {},
  examples: {
    'millrace init my-environment': 'into a new folder',
    'millrace init': 'into this folder',
    'millrace eval ./my-environment/environment.ts -m sim': 'and run it',
  },
  exitCodes: {
    ok: 'written',
    failed: 'a file is there already, or the folder cannot be written',
    usage: 'the command line is wrong',
  },
  async run({ arguments: [given = '.'] }, io) {
    const folder = resolve(io.cwd, given)
    const name = basename(folder).replaceAll(/[^A-Za-z0-9._-]+/g, '-') || 'my-environment'
    const files: Record<string, string> = {
      'environment.ts': environmentTemplate(name),
      'environment.test.ts': testTemplate,
      'README.md': readmeTemplate(name),
    }
    // An environment is an ES module, but a project around it may declare its files to be CommonJS.
    if (!existsSync(join(folder, 'package.json'))) files['package.json'] = packageTemplate(name)
    if (!existsSync(join(folder, '.gitignore'))) files['.gitignore'] = gitignoreTemplate
    // All files are checked before any is written: half an environment is of no use.
    const taken = Object.keys(files).find((file) => existsSync(join(folder, file)))
    if (taken !== undefined) {
      const message = `${join(given, taken)} is there already; choose another folder: ${io.program} init <folder>`
      throw new MillraceError('folder_unwritable', message)
    }
    try {
      makeFolders(folder)
      for (const [file, text] of Object.entries(files)) await writeFile(join(folder, file), text, { flag: 'wx' })
    } catch (error) {
      const { rawMessage } = MillraceError.from(error, 'folder_unwritable')
      const message = `cannot write to ${folder} (${rawMessage}); choose another folder`
      throw new MillraceError('folder_unwritable', message, { cause: error })
    }
    const { style } = io.stdout
    for (const file of Object.keys(files)) void io.stdout.line(`wrote ${join(given, file)}`)
    const module = `./${relative(io.cwd, join(folder, 'environment.ts'))}`
    const args = shellQuote(['eval', module, '-m', 'sim', '--sim.skill=0.8'])
    void io.stdout.line(`next: ${style.accent(`${io.program} ${args}`)}`)
    return exitCodes.ok
  },
})

/** The environment that `millrace init` writes: the simulator can solve it, and it can be read in a minute. */
export function environmentTemplate(name: string): string {
  return `import { defineEnvironment, z } from 'millrace'

const operators: Record<string, (left: number, right: number) => number> = {
  '+': (left, right) => left + right,
  '*': (left, right) => left * right,
}

export default defineEnvironment({
  name: '${name}',
  task: z.object({ expression: z.string(), answer: z.number() }),
  tasks: () => Array.from({ length: 20 }, (_, i) => ({ expression: \`\${i + 3} * \${i + 7}\`, answer: (i + 3) * (i + 7) })),

  prompt: ({ task }) => \`What is \${task.expression}? Use the calculator. End with a line "Answer: <number>".\`,

  tools: {
    calculator: {
      description: 'The value of an expression such as 6 * 7 or 6 + 7.',
      parameters: z.object({ expression: z.string() }),
      run({ expression }) {
        const [, left, operator = '', right] = /^(\\d+) ([+*]) (\\d+)$/.exec(expression) ?? []
        // What a tool throws is shown to the model, which may try again.
        if (!operators[operator]) throw new Error(\`cannot work out \${expression}\`)
        return operators[operator](Number(left), Number(right))
      },
    },
  },

  reward: ({ task, answer }) => Number(/Answer:\\s*(-?\\d+)/.exec(answer)?.[1]) === task.answer,
})
`
}

export const testTemplate = `import assert from 'node:assert/strict'
import { test } from 'node:test'
import { calls, runScripted } from 'millrace/testing'
import environment from './environment.ts'

await test('a model that reads the calculator is right', async () => {
  const { summary } = await runScripted({
    environment,
    limit: 3,
    // What the model says follows from the conversation: rollouts run at once, in no order.
    script: ({ messages }) => {
      const last = messages.at(-1)
      if (last?.role === 'tool') return \`Answer: \${last.content}\`
      return calls({ calculator: { expression: /What is (.+)\\?/.exec(String(last?.content))?.[1] } })
    },
  })
  assert.equal(summary.score?.mean, 1)
})
`

export const gitignoreTemplate = 'runs/\n'

export function readmeTemplate(name: string): string {
  return `# ${name}

An environment for [Millrace](https://www.npmjs.com/package/millrace): the tasks, the tools and the reward are in \`environment.ts\`.

    npx millrace eval ./environment.ts -m sim --sim.skill=0.8          # a simulated model: no key, no GPU
    npx millrace eval ./environment.ts -m <model> -n 4 --limit 20      # a model behind OPENAI_BASE_URL
    npx node --test environment.test.ts                                # its test, with a script for a model

Next: \`npx millrace show <run> 0-0\` reads a transcript, \`npx millrace eval --help\` explains every flag.
`
}

export function packageTemplate(name: string): string {
  return `${JSON.stringify({ name: name.toLowerCase(), private: true, type: 'module' }, undefined, 2)}\n`
}

import { existsSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { basename, join, relative, resolve } from 'node:path'
import { MillraceError } from '../../errors/index.ts'
import { makeFolders } from '../../kit/index.ts'
import { defineCommand } from '../command-line/command.ts'
import { exitCodes } from '../process/exit-codes.ts'
import { shellQuote } from '../format/shell-quote.ts'
import {
  environmentTemplate,
  gitignoreTemplate,
  packageTemplate,
  readmeTemplate,
  testTemplate,
} from './_init-template.ts'

export const initCommand = defineCommand({
  name: 'init',
  description:
    'Writes a small environment that runs at once: arithmetic with a calculator tool, in about thirty lines to start ' +
    'from, with a test. Never overwrites anything.',
  arguments: [
    { name: 'folder', required: false, help: 'the folder to write to, made if needed; this one if not given' },
  ],
  flags: {},
  examples: [
    { command: 'millrace init my-environment', explanation: 'into a new folder' },
    { command: 'millrace init', explanation: 'into this folder' },
    { command: 'millrace eval ./my-environment/environment.ts -m sim', explanation: 'and run it' },
  ],
  exitCodes: [
    { code: exitCodes.ok, meaning: 'written' },
    { code: exitCodes.failed, meaning: 'a file is there already, or the folder cannot be written' },
    { code: exitCodes.usage, meaning: 'the command line is wrong' },
  ],
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
      throw new MillraceError(
        'folder_unwritable',
        `${join(given, taken)} is there already; choose another folder: ${io.program} init <folder>`,
      )
    }
    try {
      makeFolders(folder)
      for (const [file, text] of Object.entries(files)) await writeFile(join(folder, file), text, { flag: 'wx' })
    } catch (error) {
      throw new MillraceError(
        'folder_unwritable',
        `cannot write to ${folder} (${error instanceof Error ? error.message : String(error)}); choose another folder`,
        {
          cause: error,
        },
      )
    }
    const { style } = io.stdout
    for (const file of Object.keys(files)) void io.stdout.line(`wrote ${join(given, file)}`)
    const module = `./${relative(io.cwd, join(folder, 'environment.ts'))}`
    const words = shellQuote(['eval', module, '-m', 'sim', '--sim.skill=0.8'])
    void io.stdout.line(`next: ${style.accent(`${io.program} ${words}`)}`)
    return exitCodes.ok
  },
})

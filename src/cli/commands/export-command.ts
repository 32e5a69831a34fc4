import { createWriteStream } from 'node:fs'
import { resolve } from 'node:path'
import { pipeline } from 'node:stream/promises'
import { MillraceError } from '../../errors/index.ts'
import { exportRollouts } from '../../store/index.ts'
import { defineCommand } from '../command.ts'
import { exitCodes } from '../exit-codes.ts'
import type { Output } from '../output.ts'
import { SlowProgress } from '../slow-progress.ts'
import { locateRun, readRun, runsFlag, runsRoot } from '../stored-run.ts'

export const exportCommand = defineCommand({
  name: 'export',
  description:
    'Writes every rollout of a run that has ended, one JSON object a line, with its messages: to stdout, or to a file. ' +
    'Works while the run goes on, and never holds more than a few rollouts in memory.',
  arguments: [{ name: 'run', required: true, help: 'a run: its name, or the path of its folder' }],
  flags: {
    format: { kind: 'choice', choices: ['jsonl'], group: 'What to write', help: 'The format.', default: 'jsonl' },
    tokens: {
      kind: 'switch',
      group: 'What to write',
      help: 'Add token ids, log-probabilities and weight versions of every turn, for training (see eval --tokens).',
    },
    output: {
      kind: 'text',
      short: 'o',
      value: '<file>',
      group: 'What to write',
      help: 'Write to a file. [default: stdout]',
    },
    runs: runsFlag,
  },
  examples: [
    { command: 'millrace export nightly > rollouts.jsonl', explanation: 'all rollouts of the run "nightly"' },
    { command: 'millrace export nightly --tokens -o train.jsonl', explanation: 'with tokens, into a file' },
    { command: 'millrace export nightly | head -1 | jq .messages', explanation: 'a look at the first' },
  ],
  exitCodes: [
    { code: exitCodes.ok, meaning: 'written, also when the reader has had enough' },
    { code: exitCodes.failed, meaning: 'there is no such run, or it could not be read or written' },
    { code: exitCodes.usage, meaning: 'the command line is wrong' },
  ],
  async run({ arguments: [name = ''], flags }, io) {
    const found = await locateRun(name, runsRoot(flags.runs, io), io)
    await readRun(found, async (reader) => {
      const lines = exportRollouts(reader, { format: 'jsonl', tokens: flags.tokens === true })
      if (flags.output === undefined) await writeLines(lines, io.stdout)
      else await writeFile(counted(lines, io.stderr), resolve(io.cwd, flags.output))
    })
    return exitCodes.ok
  },
})

async function writeLines(lines: AsyncIterable<string>, output: Output): Promise<void> {
  for await (const line of lines) {
    if (output.readerGone.aborted) return
    await output.write(line)
  }
}

async function* counted(lines: AsyncIterable<string>, stderr: Output): AsyncGenerator<string, void, void> {
  using progress = new SlowProgress(stderr, 'writing rollouts')
  for await (const line of lines) {
    progress.add()
    yield line
  }
}

async function writeFile(lines: AsyncIterable<string>, file: string): Promise<void> {
  try {
    await pipeline(lines, createWriteStream(file))
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    // What went wrong while reading is for whoever reads.
    if (error instanceof MillraceError || code === 'ERR_SQLITE_ERROR') throw error
    if (code === 'ENOSPC')
      throw new MillraceError('disk_full', `no room left to write ${file}; free some`, { cause: error })
    throw new MillraceError(
      'folder_unwritable',
      `cannot write ${file} (${code ?? String(error)}); choose another with -o`,
      {
        cause: error,
      },
    )
  }
}

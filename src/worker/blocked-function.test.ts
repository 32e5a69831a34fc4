import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { expect, test } from 'vitest'
import { nameBlockedFunction } from './blocked-function.ts'

/** Answers each question, after everything that is no answer. */
const program = `
const pipe = new (require('node:net').Socket)({ fd: 4 })
const noise = ['not JSON', 'null', '[1]', '{"question":"1"}', 'x'.repeat(70_000)]
pipe.on('data', (question) => {
  const answer = JSON.stringify({ question: Number(question), name: 'work (environment.ts:3)' })
  pipe.write([...noise, answer, ''].join('\\n'))
})
`

test('what an environment writes to the pipe of the probe is passed over', async () => {
  const child = spawn(process.execPath, ['-e', program], { stdio: ['ignore', 'ignore', 'inherit', 'ignore', 'pipe'] })
  try {
    const { signal } = new AbortController()
    // It may take longer to start than anybody waits for an answer.
    const ask = (): Promise<string | undefined> => nameBlockedFunction({ kind: 'process', child }, signal)
    await expect.poll(ask).toBe('work (environment.ts:3)')
  } finally {
    child.kill('SIGKILL')
    await once(child, 'exit')
  }
})

import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { activeResources, leftSince } from '../../../test/support/kit/active-resources.ts'
import { runningThreads, threadsSince } from '../../../test/support/kit/running-threads.ts'
import { Thread, workerUrl } from './thread.ts'

/** A thread that runs this code, in which `port` leads here. */
function started(code: string, options: ConstructorParameters<typeof Thread>[1] = {}): Thread<string> {
  const source = `import { parentPort as port } from 'node:worker_threads'\n${code}`
  return new Thread(new URL(`data:text/javascript,${encodeURIComponent(source)}`), options)
}

const fillMemory = 'for (const all = [];;) all.push(new Array(1_000).fill(Math.random()))'

describe('a thread that dies', () => {
  test.each([
    ['an error', `throw new Error('no such file')`, 'no such file'],
    ['an error without a message', 'throw new TypeError()', 'TypeError'],
    ['a text', `setImmediate(() => { throw 'enough' })`, 'enough'],
    ['null', 'setImmediate(() => { throw null })', 'null'],
    ['its own exit', 'process.exit(7)', 'it exited with code 7'],
    ['nothing left to do', '', 'it exited with code 0'],
    ['want of memory', fillMemory, 'it ran out of memory'],
  ])('by %s reports why, after all its messages, and no thread is left', async (_how, code, why) => {
    const before = runningThreads()
    const thread = started(`port.postMessage('first')\nport.postMessage('last')\n${code}`, {
      resourceLimits: { maxOldGenerationSizeMb: 16, maxYoungGenerationSizeMb: 4 },
    })
    const received: unknown[] = []
    thread.on('message', (message) => received.push(message))
    const { message } = await thread.ended
    expect({ message, received }).toEqual({ message: why, received: ['first', 'last'] })
    expect(threadsSince(before)).toBe(0)
    // It may be told to end all the same, and nobody waits for that.
    await thread.end('close', 60_000)
  })

  test('keeps the thrown error as the cause', async () => {
    const { cause } = await started(`throw new RangeError('too far')`).ended
    expect(cause).toBeInstanceOf(RangeError)
  })
})

describe('a thread that is asked to end', () => {
  test.each([
    ['ends by itself in its time', `port.on('message', () => process.exit(3))`, 60_000, 'it exited with code 3'],
    ['is terminated when that has passed', `port.on('message', () => { for (;;); })`, 20, 'it exited with code 1'],
  ])('%s, and leaves no resource behind', async (_how, code, graceMs, why) => {
    const before = { threads: runningThreads(), resources: activeResources() }
    const thread = started(`${code}\nport.postMessage('here')`)
    expect(await once(thread, 'message')).toEqual(['here'])
    expect(threadsSince(before.threads)).toBe(1)
    await Promise.all([thread.end('close', graceMs), thread.end('close', graceMs)])
    expect(await thread.ended).toMatchObject({ message: why })
    expect(threadsSince(before.threads)).toBe(0)
    expect(await leftSince(before.resources)).toEqual([])
  })
})

test('workerUrl() uses the file extension of its caller', () => {
  const url = workerUrl(import.meta, './thread')
  expect(url.protocol).toBe('file:')
  expect(existsSync(url)).toBe(true)
})

test('workerUrl() uses .js in the build', () => {
  const built = { filename: '/package/dist/store/writer.js', url: 'file:///package/dist/store/writer.js' }
  expect(workerUrl(built as ImportMeta, './_thread').href).toBe('file:///package/dist/store/_thread.js')
})

/** Playwright's server with a real Chromium: the heaviest one there is, with processes of its own below it. */
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { calls } from 'millrace/testing'
import { expect, test } from 'vitest'
import { processesOf, unpackedBrowser } from '../support/tools/browser.ts'
import { isRunning, liveDescendants } from '../support/tools/processes.ts'
import { environmentWith, startRollouts } from '../support/tools/rollouts-with-servers.ts'

const page = `<!doctype html><title>A page of ours</title><h1>Counting</h1>
  <button onclick="this.textContent = Number(this.textContent) + 1">41</button>`

async function servedPage() {
  const server = createServer((_request, response) => void response.setHeader('content-type', 'text/html').end(page))
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections()
      server.close()
      await once(server, 'close')
    },
  }
}

test('a browser ends with its rollout, whether the rollout used it, lost it or was cancelled', async () => {
  await using browser = await unpackedBrowser()
  await using served = await servedPage()
  const before = liveDescendants()
  const seen = new Set<number>()
  /** A rollout with a browser of its own; `turn` is given how many calls were answered, and the last answer. */
  const startRollout = (turn: (answered: number, last: string) => Readonly<Record<string, unknown>> | string) =>
    startRollouts(environmentWith({ browser: { ...browser.config, pool: { warm: 0 } } }), ({ messages }) => {
      const answers = messages.filter(({ role }) => role === 'tool')
      if (answers.length === 0) return calls({ browser_navigate: { url: served.url } })
      const last = JSON.stringify(answers.at(-1)?.content)
      if (answers.length === 1) {
        for (const pid of processesOf(browser.executable)) seen.add(pid)
        // Otherwise this is where it says why the browser did not start.
        if (!last.includes('A page of ours')) return `the page was not shown: ${last}`
      }
      const next = turn(answers.length, last)
      return typeof next === 'string' ? next : calls(next)
    })

  {
    await using used = await startRollout((answered, last) => {
      if (answered === 1) return { browser_click: { target: 'button' } }
      if (answered === 2)
        return { browser_evaluate: { function: "() => document.querySelector('button').textContent" } }
      return last
    })
    const [record] = await Array.fromAsync(used.evaluation)
    expect(record?.answer).toContain('42')
    expect(record).toMatchObject({ outcome: 'completed', toolCalls: 3, toolErrors: 0 })
    expect(seen.size).toBeGreaterThan(1)
    expect([...seen].filter(isRunning)).toEqual([])
    expect(liveDescendants()).toEqual(before)
  }
  {
    seen.clear()
    // Its server is killed and sees to nothing any more. The browser hangs, so that it does not end by itself either.
    await using lost = await startRollout(() => {
      for (const pid of seen) process.kill(pid, 'SIGSTOP')
      for (const { pid, command } of liveDescendants()) if (command.includes('cli.js')) process.kill(pid, 'SIGKILL')
      return { browser_click: { target: 'button' } }
    })
    expect(await Array.fromAsync(lost.evaluation)).toMatchObject([{ outcome: 'tool_infra_error', reward: null }])
    expect(seen.size).toBeGreaterThan(1)
    expect([...seen].filter(isRunning)).toEqual([])
  }
  {
    seen.clear()
    const isWaiting = Promise.withResolvers<void>()
    await using cancelled = await startRollout(() => {
      isWaiting.resolve()
      return { browser_evaluate: { function: '() => new Promise(() => {})' } }
    })
    const running = Array.fromAsync(cancelled.evaluation)
    await Promise.race([isWaiting.promise, running])
    cancelled.evaluation.stop()
    await running
    expect(seen.size).toBeGreaterThan(1)
  }
  expect(processesOf(browser.executable)).toEqual([])
  expect(liveDescendants()).toEqual(before)
})

/** V4: what is told when a server cannot be had again. */
import { calls } from 'millrace/testing'
import { expect, test } from 'vitest'
import { MillraceError } from '../../src/errors/index.ts'
import { toolServerEvents, type ServerEvent } from '../../src/tools/index.ts'
import { calling, sessionWith } from '../support/tools/session-with.ts'
import { startTelemetry } from '../../src/telemetry/index.ts'
import { misbehaving, ServerLog } from '../fixtures/mcp/misbehaving.ts'
import { failureOf } from '../support/tools/failure-of.ts'
import { environmentWith, startRollouts } from '../support/tools/rollouts-with-servers.ts'

/** The error and what caused it, in one line each. */
function chainOf(error: unknown): string[] {
  return error instanceof Error ? [error.message, ...chainOf(error.cause)] : []
}

test('the error of a failed reconnect contains both failures and all known details', async () => {
  using log = new ServerLog()
  await using made = sessionWith([log.mode, 'exit-before-initialize=5', 'from-start=2'], { retry: 'always' })
  const error = await failureOf(made.session.call(calling('crash')))
  expect(error.code).toBe('tool_infra')
  expect(error.rawMessage).toMatch(/^Reconnect to 'mis' also failed: server 'mis' could not be opened: .*code 5/)
  expect(error.rawMessage).toMatch(/Before that: server 'mis' exited with code 7/)
  expect(error.data).toEqual({
    server: 'mis',
    tool: 'crash',
    attempt: 2,
    generation: 1,
    mayHaveRun: true,
    exitCode: 5,
    stderr: 'cannot find my settings\n',
    elapsedMs: expect.any(Number),
    cause: expect.stringMatching(/code 7.*crashed as asked/),
    reconnectError: expect.stringMatching(/could not be opened: .*code 5/),
  })
  expect(error.data['elapsedMs']).toBeGreaterThan(0)
  const chain = chainOf(error)
  expect(chain[1]).toMatch(/exited with code 7/)
  expect(chain.some((message) => message.includes('exited with code 5'))).toBe(true)
  // What goes over a wire has it all, too.
  expect(MillraceError.fromWire(error.toWire()).data).toEqual(error.data)
})

test('the error for a killed server names the signal', async () => {
  using log = new ServerLog()
  await using made = sessionWith([log.mode])
  const { session } = made
  await session.open()
  const call = failureOf(session.call(calling('sleep', { ms: 600_000 })))
  await expect.poll(() => log.count('call')).toBe(1)
  process.kill(log.entries('start')[0]?.pid ?? Number.NaN, 'SIGKILL')
  const error = await call
  expect(error.data).toMatchObject({ server: 'mis', tool: 'sleep', attempt: 1, generation: 1, signal: 'SIGKILL' })
  expect(error.rawMessage).toContain("server 'mis' was killed by SIGKILL")
})

test('a reconnect is recorded as an event and counted', async () => {
  using log = new ServerLog()
  await using telemetry = startTelemetry({ env: {}, run: 'r', metrics: true })
  const published: ServerEvent[] = []
  using _subscription = toolServerEvents.subscribe((event) => void published.push(event))
  const good = {
    ...misbehaving('crash-mid-call', log.mode, 'until-start=2'),
    retry: 'always',
    sharing: 'shared',
  } as const
  const environment = environmentWith({ mis: good })
  await using run = await startRollouts(environment, ({ messages }) =>
    messages.at(-1)?.role === 'tool' ? 'done' : calls({ counter: {} }),
  )
  expect(await Array.fromAsync(run.evaluation)).toMatchObject([{ outcome: 'completed' }])
  using reader = await run.reader()
  const event = {
    server: 'mis',
    ok: true,
    ms: expect.any(Number),
    generation: 2,
    cause: expect.stringContaining('exited with code 7'),
  }
  expect(Array.from(reader.events('mcp.reconnect'), ({ data }) => data)).toEqual([event])
  expect(published.filter(({ name }) => name === 'mcp.reconnect')).toEqual([{ name: 'mcp.reconnect', ...event }])
  const counted = telemetry.takeDelta()?.filter(({ family }) => family === 'toolServerEvents')
  expect(counted).toContainEqual({ family: 'toolServerEvents', labels: ['mis', 'reconnect', 'ok'], values: [1] })
})

test('a failed reconnect is recorded as an event and counted', async () => {
  using log = new ServerLog()
  await using telemetry = startTelemetry({ env: {}, run: 'r', metrics: true })
  const failing = { ...misbehaving(log.mode, 'exit-before-initialize', 'from-start=2'), sharing: 'shared' } as const
  const environment = environmentWith({ mis: { ...failing, retry: 'always', awayTimeoutMs: 0 } })
  await using run = await startRollouts(environment, () => calls({ crash: {} }))
  const [record] = await Array.fromAsync(run.evaluation)
  expect(record).toMatchObject({ outcome: 'tool_infra_error', reward: null })
  expect(record?.error?.message).toContain("Reconnect to 'mis' also failed")
  using reader = await run.reader()
  expect(Array.from(reader.events('mcp.reconnect'), ({ data }) => data)).toEqual([
    { server: 'mis', ok: false, ms: expect.any(Number), generation: 1, cause: expect.stringContaining('code 3') },
  ])
  const counted = telemetry.takeDelta()?.filter(({ family }) => family === 'toolServerEvents')
  expect(counted).toContainEqual({ family: 'toolServerEvents', labels: ['mis', 'reconnect', 'failed'], values: [1] })
})

test('every timeout error names the server and the limit', async () => {
  using log = new ServerLog()
  await using hanging = sessionWith(['hang-initialize'], { startTimeoutMs: 300 })
  const opening = await failureOf(hanging.session.open())
  expect(opening.rawMessage).toMatch(/server 'mis' .*within 300 ms/)
  await using slow = sessionWith([log.mode, 'hang-initialize', 'from-start=2'])
  await slow.session.open()
  const call = await slow.session.call({ ...calling('sleep', { ms: 600_000 }), timeoutMs: 200 })
  expect(call).toMatchObject({
    isError: true,
    content: "The tool 'sleep' of server 'mis' did not answer within 200 ms and was told to stop.",
  })
  await failureOf(slow.session.call(calling('crash')))
  const reconnecting = await failureOf(slow.session.call({ ...calling('echo'), timeoutMs: 200 }))
  expect(reconnecting.rawMessage).toMatch(/^Reconnect to 'mis' also failed: .*within the 200 ms/)
})

test('the timeout message to the model names the server and the limit', async () => {
  const config = { ...misbehaving('hang-call'), callTimeoutMs: 200 }
  await using run = await startRollouts(environmentWith({ mis: config }), ({ messages }) =>
    messages.at(-1)?.role === 'tool' ? 'done' : calls({ counter: {} }),
  )
  const [record] = await Array.fromAsync(run.evaluation)
  const seen = record?.messages.find(({ role }) => role === 'tool')
  expect(String(seen?.content)).toContain("'counter' of server 'mis' did not answer within 200 ms")
})

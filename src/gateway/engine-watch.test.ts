import { createServer } from 'node:http'
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { expect, test, vi } from 'vitest'
import { plainRequest } from '../../test/support/inference/plain-request.ts'
import { HttpBackend, Model, type EngineLoad, modelConfigSchema } from '../inference/index.ts'
import { SimulatorServer } from '../simulator/index.ts'
import { EngineWatch } from './engine-watch.ts'

/** A server that answers every request with a text, and counts them. */
class TextServer implements AsyncDisposable {
  asked = 0
  status = 200
  text = ''
  readonly #server = createServer((_request, response) => {
    this.asked += 1
    response.writeHead(this.status, { 'content-type': 'text/plain' }).end(this.text)
  })

  static async start(text: string): Promise<TextServer> {
    const server = new TextServer()
    server.text = text
    server.#server.listen(0, '127.0.0.1')
    await once(server.#server, 'listening')
    return server
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}/v1`
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections()
    this.#server.close()
    await once(this.#server, 'close')
  }
}

function watchOf(urls: readonly { readonly url: string; readonly engine?: 'vllm' | 'sglang' }[]) {
  const config = modelConfigSchema.parse({ name: 'm', backends: urls })
  const backends = config.backends.map((each) => ({ config: each, backend: new HttpBackend(config, each, {}) }))
  const loads = new Map<string, EngineLoad | undefined>()
  const model = {
    noteEngineLoad: (backend: { readonly name: string }, load: EngineLoad | undefined) =>
      void loads.set(backend.name, load),
  }
  const watch = new EngineWatch({ model, intervalMs: 10 })
  const nameOf = (index: number): string => backends[index]?.backend.name ?? ''
  return {
    backends,
    loads,
    watch,
    loadOf: (index: number) => loads.get(nameOf(index)),
    async [Symbol.asyncDispose]() {
      await watch.close()
      for (const { backend } of backends) await backend.close()
    },
  }
}

const vllmText = `# HELP vllm:kv_cache_usage_perc KV-cache usage. 1 means 100 percent usage.
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="m}"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m}"} 0.75 1700000000000
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="m"} 3.0
vllm:num_requests_waiting{engine="1",model_name="m"} 4.0
vllm:num_requests_waiting_by_reason{engine="1"} 100.0
`

test('the metrics of vLLM and SGLang are read, with several engines and without labels', async () => {
  await using vllm = await TextServer.start(vllmText)
  await using sglang = await TextServer.start('sglang:token_usage 0.5\nsglang:num_queue_reqs 2')
  await using open = watchOf([
    { url: vllm.url, engine: 'vllm' },
    { url: sglang.url, engine: 'sglang' },
  ])
  open.watch.watch(open.backends)
  await vi.waitFor(() => expect(open.loads.size).toBe(2))
  expect(open.loadOf(0)).toEqual({ kvUsage: 0.75, queued: 7 })
  expect(open.loadOf(1)).toEqual({ kvUsage: 0.5, queued: 2 })
})

test('an only backend and one of an unknown engine are not asked, and one without the metrics only once', async () => {
  await using unknown = await TextServer.start(vllmText)
  await using without = await TextServer.start('python_info 1')
  await using asked = await TextServer.start(vllmText)
  await using open = watchOf([
    { url: unknown.url },
    { url: without.url, engine: 'vllm' },
    { url: asked.url, engine: 'vllm' },
  ])
  open.watch.watch(open.backends.slice(2))
  await new Promise((resolve) => setTimeout(resolve, 50))
  expect(asked.asked).toBe(0)
  open.watch.watch(open.backends)
  await vi.waitFor(() => expect(asked.asked).toBeGreaterThan(3))
  expect([unknown.asked, without.asked]).toEqual([0, 1])
})

test('a server that is away says nothing any more, and is asked again', async () => {
  await using one = await TextServer.start(vllmText)
  await using other = await TextServer.start(vllmText)
  await using open = watchOf([one, other].map(({ url }) => ({ url, engine: 'vllm' })))
  open.watch.watch(open.backends)
  await vi.waitFor(() => expect(open.loadOf(0)).toBeDefined())
  one.status = 503
  one.text = 'starting'
  await vi.waitFor(() => expect(open.loadOf(0)).toBeUndefined())
  one.status = 200
  one.text = vllmText
  await vi.waitFor(() => expect(open.loadOf(0)).toBeDefined())
})

test('asking stops at close', async () => {
  await using one = await TextServer.start(vllmText)
  await using other = await TextServer.start(vllmText)
  await using open = watchOf([one, other].map(({ url }) => ({ url, engine: 'vllm' })))
  open.watch.watch(open.backends)
  await vi.waitFor(() => expect(other.asked).toBeGreaterThan(1))
  await open.watch.close()
  open.watch.watch(open.backends)
  await new Promise((resolve) => setTimeout(resolve, 20))
  const before = [one.asked, other.asked]
  await new Promise((resolve) => setTimeout(resolve, 60))
  expect([one.asked, other.asked]).toEqual(before)
})

test('new sessions avoid a simulated engine with a queue of other clients', async () => {
  await using busy = await SimulatorServer.start({ maxRunning: 1, ttftMs: 3000, spread: 0 })
  await using idle = await SimulatorServer.start()
  const urls = [busy, idle].map(({ url }) => ({ url, engine: 'vllm' as const }))
  const config = modelConfigSchema.parse({ name: 'm', backends: urls })
  const backends = config.backends.map((each) => ({ config: each, backend: new HttpBackend(config, each, {}) }))
  await using parts = new AsyncDisposableStack()
  for (const { backend } of backends) parts.use(backend)
  const model = parts.use(
    new Model(
      config,
      backends.map(({ backend }) => backend),
    ),
  )
  const watch = parts.use(new EngineWatch({ model, intervalMs: 10 }))
  const body = JSON.stringify({ model: 'm', messages: [{ role: 'user', content: 'hi' }] })
  const headers = { 'content-type': 'application/json' }
  const others = Array.from({ length: 9 }, () =>
    fetch(`${busy.url}/chat/completions`, { method: 'POST', headers, body }),
  )
  void Promise.allSettled(others)
  watch.watch(backends)
  await vi.waitFor(() => expect(model.status().backends?.[0]?.queued).toBe(8))
  const { signal } = new AbortController()
  const replies = await Promise.all(
    Array.from({ length: 8 }, (_, id) => model.call({ ...plainRequest, sessionId: `s${id}` }, { signal })),
  )
  expect(replies.map(({ backend }) => backend)).toEqual(Array.from({ length: 8 }, () => backends[1]?.backend.name))
})

import { expect, test } from 'vitest'
import { ShardStore } from '../../src/serve/compat/areal/shard-store.ts'
import { ArealGateway, trajIn } from '../support/areal/areal-gateway.ts'

interface Reference {
  readonly type: string
  readonly class_path: string
  readonly data: {
    readonly shard: { readonly data: { readonly shard_id: string; readonly node_addr: string } }
    readonly data: { readonly data: null; readonly shape: readonly number[]; readonly dtype: string }
  }
}

async function rewarded(areal: ArealGateway) {
  const session = await areal.startOne()
  await areal.converse(session, 2)
  await areal.reward(session, 1)
  return session
}

/** As aiohttp sends the name before the host of an address. */
function fetched(address: string): Record<string, string> {
  const [user = ''] = address.split('@')
  return { authorization: `Basic ${Buffer.from(`${user}:`).toString('base64')}` }
}

test('tensors by reference are fetched at their address, and are those that an export has in it', async () => {
  await using areal = await ArealGateway.start([{}], { areal: { tensors: 'reference' } })
  const session = await rewarded(areal)
  const traj = trajIn(await areal.export([session], { remove_session: false })) as unknown as Record<string, Reference>
  const references = Object.values(traj)
  const shards = references.map(({ data }) => data.shard.data)
  expect(references).toHaveLength(6)
  for (const { type, class_path: path } of references) {
    expect([type, path]).toEqual(['dataclass', 'areal.infra.rpc.rtensor.RTensor'])
  }
  const address = shards[0]?.node_addr ?? ''
  expect(address.endsWith(`@${areal.gateway.url.slice('http://'.length)}`)).toBe(true)
  const headers = fetched(address)
  const ids = shards.map(({ shard_id: id }) => id)
  const batch = await areal.gateway.ask('/data/batch', { key: null, headers, body: { shard_ids: ids } })
  expect(batch.headers['content-type']).toBe('application/octet-stream')
  const tensors = batch.body as unknown as { shape: number[]; dtype: string; data: string }[]
  expect(tensors.map(({ shape, dtype }) => [shape, dtype])).toEqual(
    references.map(({ data }) => [data.data.shape, data.data.dtype]),
  )
  const one = await areal.gateway.ask(`/data/${ids[0]}`, { key: null, headers })
  expect(one.body).toEqual(tensors[0])

  const cleared = await areal.gateway.ask('/data/clear', {
    method: 'DELETE',
    key: null,
    headers,
    body: { shard_ids: ids },
  })
  expect(cleared.body).toEqual({ status: 'ok', cleared_count: 6, num_tensors: 0, total_bytes: 0 })
  const missing = await areal.gateway.ask('/data/batch', { key: null, headers, body: { shard_ids: ids } })
  expect([missing.status, missing.body]).toEqual([
    400,
    { status: 'error', message: 'One or more requested shards were not found', missing_shard_ids: ids },
  ])
  expect((await areal.gateway.ask(`/data/${ids[0]}`, { key: null, headers })).status).toBe(404)
})

test('an empty list of tensors is one, and no list is refused', async () => {
  await using areal = await ArealGateway.start()
  expect((await areal.post('/data/batch', { shard_ids: [] })).text).toBe('[]')
  expect((await areal.post('/data/batch', { shard_ids: 'x' })).status).toBe(400)
})

test('an export that finds no room among the tensors has its own in it', async () => {
  await using areal = await ArealGateway.start([{}], { areal: { tensors: 'reference' }, bounds: { maxShardBytes: 10 } })
  const session = await rewarded(areal)
  expect(trajIn(await areal.export([session]))['input_ids']).toMatchObject({ type: 'tensor', data: expect.any(String) })
})

test('the store is bounded, forgets what nobody clears, and shows a tenant only its own', async () => {
  const tensor = { bytes: new Uint8Array(40), shape: [40], dtype: 'torch.bool' } as const
  using store = new ShardStore({ maxBytes: 100, keepMs: 50 })
  const [id = '', second = ''] = store.add('one', [tensor, tensor]) ?? []
  expect(store.add('one', [tensor])).toBeUndefined()
  expect(store.get('one', id)).toBe(tensor)
  expect(store.get('other', id)).toBeUndefined()
  expect(store.clear('other', [id])).toBe(0)
  expect(store.clear('one', [id, id])).toBe(1)
  expect(store.figures).toEqual({ num_tensors: 1, total_bytes: 40 })
  await expect.poll(() => store.get('one', second)).toBeUndefined()
  expect(store.figures).toEqual({ num_tensors: 0, total_bytes: 0 })
})

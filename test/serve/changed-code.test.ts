import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { RolloutService } from 'millrace'
import { ScriptedBackend, temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import { fixture } from '../support/cli/millrace-process.ts'

test('a server with changed code records that in its run from its next rollout', async () => {
  await using runs = await temporaryRuns()
  const { root } = runs
  const file = join(root, 'served', 'run.json')
  const provenance = async (): Promise<Record<string, unknown>> => {
    const { provenance: kept } = JSON.parse(await readFile(file, 'utf8')) as { provenance: Record<string, unknown> }
    return kept
  }
  const open = (): Promise<RolloutService> =>
    RolloutService.open({
      environment: fixture('rows.ts'),
      options: { file: 'none' },
      model: { name: 'scripted', backends: [{ url: 'http://scripted.invalid' }] },
      backends: { scripted: [new ScriptedBackend(() => 'done')] },
      preflight: false,
      run: { root, name: 'served' },
    })
  {
    await using service = await open()
    const { results } = await service.submit({ tasks: [{ left: 2, right: 2 }] })
    for await (const { id } of results) expect(id).toBeTypeOf('string')
  }
  const kept = await readFile(file, 'utf8')
  const { code } = await provenance()
  const [digest] = Object.values(code as Record<string, string>)
  await writeFile(file, kept.replace(String(digest), 'another'))
  await using service = await open()
  expect(service.info.notices.join()).toContain('warning: rows.ts changed since run served began')
  expect(await provenance()).not.toHaveProperty('changedCode')
  const { results } = await service.submit({ tasks: [{ left: 1, right: 2 }] })
  for await (const _result of results) expect(await provenance()).toMatchObject({ changedCode: ['rows.ts'] })
})

import { expect, test } from 'vitest'
import { TestGateway } from '../support/gateway/test-gateway.ts'

test('the url of a session begins with the public url of the gateway', async () => {
  await using plain = await TestGateway.start()
  expect((await plain.startSession()).url).toMatch(new RegExp(`^${plain.url}/sessions/ses_`))
  await using proxied = await TestGateway.start({ publicUrl: 'https://gateway.example.com/models/' })
  const { id, url } = await proxied.startSession()
  expect(url).toBe(`https://gateway.example.com/models/sessions/${id}`)
  await expect(TestGateway.start({ publicUrl: 'gateway.example.com' })).rejects.toMatchObject({
    code: 'config_invalid',
    message: expect.stringContaining('"gateway.example.com" is not a valid public URL') as string,
  })
})

import { expect, test } from 'vitest'
import { SessionCookies } from './session-cookie.ts'

function sent(
  cookies: SessionCookies,
  header?: string,
): { readonly id: string; readonly isNew: boolean; readonly pair: string } {
  const session = cookies.session(header)
  const [pair = ''] = cookies.headers(session)['set-cookie'].split(';', 1)
  return { ...session, pair }
}

test('a cookie has the form of NeMo Gym’s, and brings its session back', () => {
  const cookies = new SessionCookies('Millrace', 'my counter')
  const first = sent(cookies)
  expect(first.isNew).toBe(true)
  expect(cookies.headers(first)).toEqual({
    'set-cookie': expect.stringMatching(
      /^Millrace___my-counter=[\w-]+\.\w+\.[\w-]+; path=\/; Max-Age=1209600; httponly; samesite=lax$/,
    ),
    vary: 'Cookie',
  })
  expect(sent(cookies, `Other___server=abc.1.x; ${first.pair}; sid=1`)).toMatchObject({ id: first.id, isNew: false })
  expect(sent(cookies).id).not.toBe(first.id)
})

test('a cookie that this server did not sign begins a new session', () => {
  const cookies = new SessionCookies('Millrace', 'a')
  const { pair, id } = sent(cookies)
  const [name, value = ''] = pair.split('=')
  const [, time, signature] = value.split('.')
  const other = Buffer.from('another-session').toString('base64url')
  for (const wrong of [
    `${name}=${other}.${time}.${signature}`,
    `${name}=${value.slice(0, -1)}`,
    `${name}=`,
    `${name}=..`,
    sent(new SessionCookies('Millrace', 'a')).pair,
    pair.replace('Millrace___a', 'Millrace___b'),
    `x${pair}`,
    `${pair};${'x'.repeat(5_000)}`,
  ]) {
    const found = sent(cookies, wrong)
    expect(found.isNew, wrong).toBe(true)
    expect(found.id).not.toBe(id)
  }
})

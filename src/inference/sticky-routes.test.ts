import { expect, test } from 'vitest'
import { StickyRoutes } from './sticky-routes.ts'

test('forgets the session not heard of for longest, and any on demand', () => {
  const routes = new StickyRoutes<number>()
  for (let id = 0; id < 65_536; id += 1) routes.set(`s${id}`, id)
  routes.set('s0', 0)
  routes.set('new', -1)
  expect(routes.get('s0')).toBe(0)
  expect(routes.get('s1')).toBeUndefined()
  expect(routes.get('s2')).toBe(2)
  routes.forget('s2')
  expect(routes.get('s2')).toBeUndefined()
})

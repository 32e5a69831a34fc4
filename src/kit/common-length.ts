/** How many members, or characters, two lists or texts have in common at their beginning. */
export function commonLength<Member>(one: ArrayLike<Member>, other: ArrayLike<Member>): number {
  const shorter = Math.min(one.length, other.length)
  let length = 0
  while (length < shorter && one[length] === other[length]) length += 1
  return length
}

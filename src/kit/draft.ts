/** An object while it is put together: what it may lack is added afterwards. */
export type Draft<Whole> = { -readonly [Key in keyof Whole]: Whole[Key] }
